/* Field tables for messages between client and worker that open and interrupt the shared-memory
 * link for tasks. The tasks themselves travel through that link (proto/task). */
#include "proto/message/tables.h"

const gp_field gp_task_open_fields[] = {
    GP_FIELD_U32(gp_task_open, link_version, 1, UINT32_MAX),
    GP_FIELD_U32(gp_task_open, task_abi, 1, UINT32_MAX),
    GP_FIELD_END,
};

const gp_field gp_task_ready_fields[] = {
    GP_FIELD_U32(gp_task_ready, link_version, 1, UINT32_MAX),
    GP_FIELD_U32(gp_task_ready, task_abi, 1, UINT32_MAX),
    GP_FIELD_END,
};

const gp_field gp_task_stop_fields[] = {
    GP_FIELD_U64(gp_task_stop, call, 1, UINT64_MAX),
    GP_FIELD_END,
};
