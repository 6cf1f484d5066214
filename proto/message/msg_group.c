/* Field tables for messages between scheduler and worker: registration, heartbeats, grants and
 * revocation. messages.h describes the fields. */
#include "proto/message/tables.h"

const gp_field gp_worker_ready_fields[] = {
    GP_FIELD_STRUCT(gp_worker_ready, slot, gp_slot_fields),
    GP_FIELD_U32(gp_worker_ready, state, GP_WORKER_STARTING, GP_WORKER_DEAD),
    GP_FIELD_PROSE(gp_worker_ready, reason),
    GP_FIELD_U64(gp_worker_ready, lease, 0, UINT64_MAX),
    GP_FIELD_U32(gp_worker_ready, generation, 0, GP_GENERATION_MAX),
    GP_FIELD_BIN16_OPTIONAL(gp_worker_ready, token),
    GP_FIELD_U32_OPTIONAL(gp_worker_ready, client_pid, 0, INT32_MAX, 0),
    GP_FIELD_BIN16_OPTIONAL(gp_worker_ready, client_session),
    GP_FIELD_END,
};

const gp_field gp_worker_welcome_fields[] = { GP_FIELD_END };

const gp_field gp_beat_fields[] = {
    GP_FIELD_U32(gp_beat, state, GP_WORKER_STARTING, GP_WORKER_DEAD),
    GP_FIELD_U64(gp_beat, progress, 0, UINT64_MAX),
    GP_FIELD_U64(gp_beat, step, 0, GP_STEPS_MAX),
    GP_FIELD_U32(gp_beat, epoch, 0, GP_EPOCHS_MAX),
    GP_FIELD_U32_OPTIONAL(gp_beat, work, GP_WORK_OURS, GP_WORK_USERS, GP_WORK_OURS),
    GP_FIELD_U64_OPTIONAL(gp_beat, stretch_ms, 0, GP_DURATION_MS_MAX, 0),
    GP_FIELD_U64_OPTIONAL(gp_beat, stretch_max_ms, 0, GP_DURATION_MS_MAX, 0),
    GP_FIELD_END,
};

const gp_field gp_grant_fields[] = {
    GP_FIELD_BIN16(gp_grant, token),
    GP_FIELD_U32(gp_grant, client_pid, 0, GP_PID_MAX),
    GP_FIELD_U32(gp_grant, rank, 0, GP_MEMBERS_MAX - 1),
    GP_FIELD_LIST(gp_grant, members, gp_slot_fields, GP_MEMBERS_MAX),
    GP_FIELD_END,
};

const gp_field gp_grant_ack_fields[] = { GP_FIELD_END };

const gp_field gp_peer_lost_fields[] = {
    GP_FIELD_U32(gp_peer_lost, index, 1, GP_WORKERS_MAX),
    GP_FIELD_U32(gp_peer_lost, incarnation, 1, GP_INCARNATION_MAX),
    GP_FIELD_PROSE(gp_peer_lost, cause),
    GP_FIELD_END,
};

const gp_field gp_revoke_fields[] = {
    GP_FIELD_PROSE(gp_revoke, reason),
    GP_FIELD_END,
};

const gp_field gp_revoked_fields[] = {
    GP_FIELD_U32_OPTIONAL(gp_revoked, recycle, 0, 1, 0),
    GP_FIELD_END,
};

const gp_field gp_quit_fields[] = { GP_FIELD_END };
