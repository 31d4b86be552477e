`sticky logs` shows when a Server's packages are being installed and how long that took; and the SDK's errors say where the reason is that containers fail to
start.
