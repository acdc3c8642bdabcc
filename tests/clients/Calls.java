// What the Java client of the table does: `java Calls.java GATEWAY REST PROGRAM ... < BODIES`; a line of JSON for each.
// BODIES: three lines, for the gateway, for REST, and of 2,048 texts. HttpClient asks each of them for HTTP/2 by itself.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;

public class Calls {
    static final HttpClient client = HttpClient.newHttpClient();

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String forGateway = lines.readLine(), forRest = lines.readLine(), forMany = lines.readLine();
        var gateway = "http://" + arguments[0] + "/embed";
        var rest = "http://" + arguments[1] + "/v1/models/embedder:predict";
        for (int number = 2; number < arguments.length; number++) {
            String answer = switch (arguments[number]) {
                case "gateway" -> posted(gateway, BodyPublishers.ofString(forGateway));
                case "rest" -> posted(rest, BodyPublishers.ofString(forRest));
                case "many" -> posted(gateway, BodyPublishers.ofString(forMany));
                case "chunked" -> {
                    var bytes = forGateway.getBytes(StandardCharsets.UTF_8);
                    yield posted(gateway, BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(bytes)));
                }
                case "again" -> {
                    String last = "";
                    for (int time = 0; time < 16; time++) {
                        posted(rest, BodyPublishers.ofString(forRest));
                        last = posted(gateway, BodyPublishers.ofString(forGateway));
                    }
                    yield last;
                }
                default -> throw new IllegalArgumentException(arguments[number]);
            };
            System.out.println("{\"program\": \"" + arguments[number] + "\", \"answer\": " + answer + "}");
        }
    }

    static String posted(String url, BodyPublisher body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(url)).header("Content-Type", "application/json").POST(body).build();
        var answer = client.send(request, BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IllegalStateException(answer.statusCode() + " " + answer.body());
        }
        return answer.body().replace("\n", " ");
    }
}
