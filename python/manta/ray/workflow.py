"""ray.workflow is not part of manta.ray: importing it raises an ImportError that says so."""
from manta.ray._missing import refuse

refuse("workflow")
