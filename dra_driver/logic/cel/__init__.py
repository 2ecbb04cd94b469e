"""The parts of `logic.selection`: the device variable, the function library, checks, the engine."""
