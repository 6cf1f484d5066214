/* Field tables for messages that any process may send to any other. messages.h describes the
 * fields. */
#include "proto/message/tables.h"

const gp_field gp_error_reply_fields[] = {
    GP_FIELD_STATUS(gp_error_reply, code, 1), /* GP_OK is not an error */
    GP_FIELD_PROSE(gp_error_reply, message),
    GP_FIELD_U32(gp_error_reply, worker, 0, GP_WORKERS_MAX),
    GP_FIELD_END,
};

const gp_field gp_ok_reply_fields[] = { GP_FIELD_END };

const gp_field gp_hello_fields[] = {
    GP_FIELD_U32(gp_hello, role, GP_ROLE_CLIENT, GP_ROLE_VIEWER),
    GP_FIELD_U32(gp_hello, protocol_min, 1, GP_PROTOCOL_MAX),
    GP_FIELD_U32(gp_hello, protocol_max, 1, GP_PROTOCOL_MAX),
    GP_FIELD_PROSE(gp_hello, build),
    GP_FIELD_U32(gp_hello, pid, 1, GP_PID_MAX),
    GP_FIELD_U64_OPTIONAL(gp_hello, features, 0, UINT64_MAX, 0),
    GP_FIELD_END,
};

const gp_field gp_welcome_fields[] = {
    GP_FIELD_U32(gp_welcome, protocol, 1, GP_PROTOCOL_MAX),
    GP_FIELD_PROSE(gp_welcome, build),
    GP_FIELD_TEXT(gp_welcome, pool),
    GP_FIELD_U32(gp_welcome, pid, 1, GP_PID_MAX),
    GP_FIELD_U64(gp_welcome, uptime_ms, 0, GP_DURATION_MS_MAX),
    GP_FIELD_END,
};
