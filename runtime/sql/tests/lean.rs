//! ADR 0003: DataFusion's parts, not the whole.

#[test]
fn the_lean_set_stays_lean() {
    let lock = include_str!("../../../Cargo.lock");
    for whole in
        ["datafusion", "datafusion-catalog", "datafusion-physical-plan", "datafusion-datasource", "parquet"]
    {
        let entry = format!("name = \"{whole}\"\n");
        assert!(!lock.contains(&entry), "{whole} is in the tree; cargo tree -i {whole} says why");
    }
    let arrow_count = lock.matches("name = \"arrow-array\"\n").count();
    assert_eq!(arrow_count, 1, "two arrow majors cannot exchange batches");
}
