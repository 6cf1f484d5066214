/* Field table for the message that starts a command runner. All further requests go directly to the
 * runner (runner_wire.h). */
#include "proto/message/tables.h"

const gp_field gp_run_open_fields[] = { GP_FIELD_END };
