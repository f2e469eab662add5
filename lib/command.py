"""What the commands `python -m lib.batch`, `runs` and `data` share: how they speak, and how they end."""

import os
import sys
from collections.abc import Callable

from lib.checks import ConfigError, DataError, EncoderError, refusal, say

DONE, FAILED, REFUSED, INTERRUPTED, NOT_READ = 0, 1, 2, 130, 141


def ended(command: Callable[[], int]) -> int:
    """Call a command; what keeps it from its work is one sentence on stderr. Returns the exit code: the command's own,
    REFUSED for a wrong parameter or file, INTERRUPTED, or NOT_READ where nobody reads the output any more."""
    try:
        code = command()
        sys.stdout.flush()
        return code
    except (ConfigError, DataError, EncoderError) as error:
        say(str(error))
        return REFUSED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more when it ends
        return NOT_READ
    except OSError as error:
        say(refusal(error))
        return REFUSED
    except KeyboardInterrupt:
        say("Interrupted; start the same command again: what is finished is kept, and an interrupted run resumes.")
        return INTERRUPTED
