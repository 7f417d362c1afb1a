"""The same experiment across real sites, over Flower.

A *site* is an organisation with its own machine and data. It holds one or more clients. The
*server* has the run folder. A *deployment* is the folder that `fedloom deploy init` makes:
`layout.py` says what lies where, `provision.py` writes it, `server.py` and `node.py` start the
processes, `server_app.py` and `client_app.py` are what Flower runs in them.
"""
