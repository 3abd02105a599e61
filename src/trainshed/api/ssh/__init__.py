"""A port for plain ssh clients: `ssh -p PORT JOB@host` enters a running job with a registered key."""
