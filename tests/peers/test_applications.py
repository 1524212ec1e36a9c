"""Models of keras.applications, saved by Keras: Manta predicts what Keras does and takes the same training step.

A few that have between them what the others are made of (Normalization, LayerScale, hard_silu, separable convolutions,
squeeze and excitation, cropping and pooling); MANTA_APPLICATIONS=all takes every one. applications.py does the work and says what is compared.
"""
import json
import os
import pathlib

import pytest

from conftest import ROOT, run_python

SCRIPT = pathlib.Path(__file__).parent / "applications.py"
SAMPLE = ["ConvNeXtTiny", "EfficientNetB0", "MobileNetV3Small", "NASNetMobile", "Xception"]


def chosen():
    if os.environ.get("MANTA_APPLICATIONS") != "all":
        return SAMPLE
    done = run_python("-c", "import applications; print(*applications.names())", cwd=SCRIPT.parent)
    return done.stdout.split()


@pytest.mark.parametrize("name", chosen())
def test_a_model_of_keras_applications(name):
    done = run_python(SCRIPT, name, cwd=ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["right"], row
