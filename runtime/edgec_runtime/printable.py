"""Text from outside, for people; said in the device end, which prints too and stands
alone.
"""

from .device_end.printable import printable as printable
