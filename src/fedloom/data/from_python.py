"""placeholder until merged"""


def as_dataset(data, **options):
    raise NotImplementedError
