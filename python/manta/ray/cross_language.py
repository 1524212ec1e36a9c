"""ray.cross_language is not part of manta.ray: importing it raises an ImportError that says so."""
from manta.ray._missing import refuse

refuse("cross_language")
