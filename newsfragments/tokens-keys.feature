Proxy tokens are made, listed and revoked while the daemon runs (`sticky tokens`; for a file: `create --toml`), signing keys are
rotated (`sticky keys rotate`), and the admin API can listen on TCP for holders of an admin token (`admin_listen`, `sticky --url`).
