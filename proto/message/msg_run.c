/* msg_run.c -- between client and worker: commands.  The rest is said to the runner itself (runner_wire.h). */
#include "proto/message/tables.h"

const gp_field gp_run_open_fields[] = { GP_FIELD_END };
