/* Field tables for all messages, defined in msg_<family>.c: one per message type and one per struct
 * that is nested in a message. Internal to proto/. */
#ifndef GP_TABLES_H
#define GP_TABLES_H

#include "proto/message/messages.h"

#define GP_MSG(id, name, direction) extern const gp_field gp_##name##_fields[];
#include "proto/message/messages.def"
#undef GP_MSG
extern const gp_field gp_slot_fields[], gp_worker_row_fields[], gp_lease_row_fields[],
    gp_train_record_fields[], gp_job_row_fields[], gp_lease_member_fields[];

#endif
