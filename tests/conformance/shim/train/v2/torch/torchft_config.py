"""ray.train.v2.torch.torchft_config: replicas that fail one by one are not part of manta.train, whose trainers refuse this."""


class TorchftConfig:
    def __init__(self, **options):
        self.options = options
