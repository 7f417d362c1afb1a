"""The messages between the server and a site: what is asked, and what is answered.

A message is a few named parts, each of them facts and tensors as bytes (envelope.py). A request has
the part "request"; one for work also has the part "broadcast", which is the same for all sites of a
round. A reply has the part "reply". Every request and every reply begins with these facts:

    kind      see below
    request   id of the request. A request that is sent again has the same id, so that a site can
              give the answer that it has already; a reply repeats the id of its request.
    run       id of the run: fedloom's own, which stays the same when a run is resumed
    site      name of the site that is asked, or that replies

Requests, with their further facts:

    hello           "Who are you, and what data do you have?"
    setup           "This is what was agreed for the run."
                      digest      of the agreement
                      agreement   all of it, as JSON
    work            "Do this for these clients."
                      setup       digest of the agreement that the work belongs to
                      broadcast   checksum of the part "broadcast"
                      oldest      the oldest round that the server may go back to; a site can forget
                                  what it keeps for earlier ones. null: keep everything
                      tasks       a list of {number, slots}: of the client (for the work "evaluate"
                                  of the piece, which is the client whose test data are meant), and
                                  the names of what the server carries for it
                    tensors: "INDEX\\nmemories\\nSLOT\\nNAME", INDEX counts the tasks from 0
                    Part "broadcast": facts kind ("broadcast"), work, round, timeout (seconds for a
                    client, or null), shared (names); tensors "sent\\nparams\\nNAME" and
                    "sent\\nshared GROUP\\nNAME".

Replies, with their further facts:

    hello           report        what the site says of itself, as JSON
    setup           digest        of the agreement, which the site has accepted
    answers         setup, work, round   those of the request
                    answers       a list of {number, answer}: the facts of `engines.wire.pack`
                    tensors: "INDEX\\n" and the names of `engines.wire.pack`, INDEX counts the
                    answers from 0
    unknown setup   setup         the digest that the site does not know: send the setup, then the
                                  work again
    error           reason        one line for the user
                    fatal         whether asking again is of no use
                    `request`, `run` and `site` are empty if the request could not be read.

The server makes requests with `hello_request`, `setup_request`, `broadcast_part` and
`work_request`; a site reads them with `read_request`, which returns a HelloRequest, a SetupRequest
or a WorkRequest. A site replies with `hello_reply`, `setup_reply`, `answers_reply`,
`unknown_setup_reply` and `error_reply`; the server reads them with `read_reply`. Both readers raise
WireError for whatever is not such a message, and nothing else.
"""

from __future__ import annotations

from fedloom.engines.flower.message_form import (
    BROADCAST,
    NO_HEADER,
    REPLY,
    REQUEST,
    Header,
    Parts,
)
from fedloom.engines.flower.replies import (
    AnswersReply,
    ErrorReply,
    HelloReply,
    Reply,
    SetupReply,
    UnknownSetupReply,
    answers_reply,
    error_reply,
    hello_reply,
    read_reply,
    setup_reply,
    unknown_setup_reply,
)
from fedloom.engines.flower.requests import (
    HelloRequest,
    Request,
    SetupRequest,
    WorkRequest,
    broadcast_part,
    hello_request,
    read_request,
    setup_request,
    work_request,
)
from fedloom.engines.wire import Facts

__all__ = [
    "BROADCAST",
    "NO_HEADER",
    "REPLY",
    "REQUEST",
    "AnswersReply",
    "ErrorReply",
    "Facts",
    "Header",
    "HelloReply",
    "HelloRequest",
    "Parts",
    "Reply",
    "Request",
    "SetupReply",
    "SetupRequest",
    "UnknownSetupReply",
    "WorkRequest",
    "answers_reply",
    "broadcast_part",
    "error_reply",
    "hello_reply",
    "hello_request",
    "read_reply",
    "read_request",
    "setup_reply",
    "setup_request",
    "unknown_setup_reply",
    "work_request",
]
