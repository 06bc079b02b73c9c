"""Questions and answers: wire protocol, server, client, back ends."""
