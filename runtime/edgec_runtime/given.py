"""Files that somebody names; said in the device end, which reads such too and stands
alone.
"""

from .device_end.disk import given as given
