/* tables.h -- inside proto/: the field tables of msg_<family>.c, one per message and per struct in a list. */
#ifndef GP_TABLES_H
#define GP_TABLES_H

#include "proto/message/messages.h"

#define GP_MSG(id, name, direction) extern const gp_field gp_##name##_fields[];
#include "proto/message/messages.def"
#undef GP_MSG
extern const gp_field gp_slot_fields[], gp_worker_row_fields[], gp_lease_row_fields[],
    gp_train_record_fields[], gp_job_row_fields[], gp_lease_member_fields[];

#endif
