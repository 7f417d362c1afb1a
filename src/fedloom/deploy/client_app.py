from fedloom_echo import client as app
