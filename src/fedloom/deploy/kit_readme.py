"""The pages that `fedloom deploy init` writes for the server's admin and for each site."""

from __future__ import annotations

from fedloom.deploy.flower_extra import TESTED
from fedloom.deploy.layout import Address

_KIT = """# Start kit of site `{site}`

This folder connects one machine of yours to the server {address}. It holds `node.key`, which
proves that you are `{site}`: keep it secret, as you would an ssh key. Whoever has it can take your
place. Your data are read on your machine and never sent; model weights are.

1. Install fedloom with Flower {flower}: `pip install 'fedloom[flower]'`
2. Read `site.toml`. Options for the reader of your data are under `[data]`, such as
   `target = "ill"`, the column to predict. Under `[share]` you can write `statistics = false` to
   keep sums and category names to yourself. The server cannot change this file.
3. Start, and leave it running: `fedloom deploy node . --data PATH`

PATH is your data: a CSV, Parquet or npz file, or a folder of them or of images (see docs/data.md).
The machine needs to reach {address} (outgoing TCP); nothing needs to reach your machine. Stop it
with Ctrl-C; start it again with the same command, at any time: what your clients remember is kept
in `state/`, which never leaves this machine. Back it up together with this folder.

Log files are in `state/logs/`. Questions about an error: send its text, not your key.
"""

_DEPLOYMENT = """# Deployment `{name}`

Sites: {sites}. Server: {address}.

1. Send each folder `kits/NAME` to its site, over a channel you trust (it holds the site's key).
   Then delete your copy.
2. Move `ca.key` to a safe place. It is needed again only to renew the server's certificate.
3. At the server: `fedloom deploy server .` and leave it running.
4. At each site: `fedloom deploy node KIT --data PATH` and leave it running.
5. At the server, in another terminal: `fedloom deploy status .`, then `fedloom deploy run .`

The run is in `server/runs/{name}`, a run folder like any other: `fedloom report` reads it.
If anything stops, start it again with the same command. Settings of the run are in
`server/app/pyproject.toml`.
"""


def kit_readme(site: str, address: Address) -> str:
    """The page in a site's kit."""
    return _KIT.format(site=site, address=address, flower=TESTED)


def deployment_readme(name: str, sites: tuple[str, ...], address: Address) -> str:
    """The page in a deployment's folder."""
    return _DEPLOYMENT.format(name=name, sites=", ".join(sites), address=address)
