`sticky check`, `sticky deploy` and the daemon at its start warn of Servers whose program is not there or not executable, and `sticky doctor`
fails for them. `sticky check --strict` exits with 1 where there is a warning.
