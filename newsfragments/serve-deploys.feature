Changes of files are deployed by `sticky serve` to the daemon that runs, so sessions stay; `sticky run` shows what containers write;
`sticky check` takes an app and a file together.
