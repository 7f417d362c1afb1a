"""Made-up findings of patients, several at a time, at clinics that see different patients.

python docs/examples/multilabel.py
"""

import numpy as np

import fedloom as fl

NAMES = ("fever", "cough", "rash")


def findings(patients: int = 90, clinics: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measurements, labels of 0 and 1, and the clinic of each patient."""
    draws = np.random.default_rng(0)
    clinic = np.repeat(np.arange(clinics), patients)
    x = draws.normal(size=(len(clinic), 6)) + draws.normal(size=(clinics, 6))[clinic] / 2
    scores = x @ draws.normal(size=(6, len(NAMES))) + draws.normal(size=(len(clinic), len(NAMES)))
    return x, (scores > 0.5).astype(int), clinic


if __name__ == "__main__":
    x, labels, clinic = findings()
    experiment = fl.Experiment(
        "ditto",
        "mlp(width=32)",
        (x, labels),
        client_ids=clinic,
        task="multilabel",
        per_round=4,
        rounds=10,
    )
    run = experiment.run()
    print(run.result)
    print(run.predict(x[:3]).round(2))  # the probability of each label
