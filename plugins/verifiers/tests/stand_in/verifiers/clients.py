import os


class Client:
    def __init__(self, config):
        self.base_url, self.key, self.closed = config.api_base_url, os.environ[config.api_key_var], False

    async def close(self):
        self.closed = True


def resolve_client(config):
    return Client(config)
