//! Share-group source, transactional sink and the commit protocols of a job.
