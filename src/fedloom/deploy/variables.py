"""Environment variables with which a deployment's processes tell each other where things are.

They hold paths, never secrets.
"""

SERVER_FOLDER = "FEDLOOM_DEPLOY_SERVER"  # set by `deploy server`, read by SuperLink and ServerApp
