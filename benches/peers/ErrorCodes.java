import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints every error code of the protocol: code, name, and "retriable" or "-". */
public final class ErrorCodes {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            String retriable = error.exception() instanceof RetriableException ? "retriable" : "-";
            System.out.println(error.code() + " " + error.name() + " " + retriable);
        }
    }
}
