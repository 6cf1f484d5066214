/* Field tables for messages between client and scheduler: pool status, leases, resizing and
 * shutdown. messages.h describes the fields. */
#include "proto/message/tables.h"

const gp_field gp_slot_fields[] = {
    GP_FIELD_U32(gp_slot, index, 1, GP_WORKERS_MAX),
    GP_FIELD_U32(gp_slot, incarnation, 1, GP_INCARNATION_MAX),
    GP_FIELD_U32(gp_slot, pid, 0, GP_PID_MAX),
    GP_FIELD_U64(gp_slot, start_time, 0, UINT64_MAX),
    GP_FIELD_TEXT(gp_slot, endpoint),
    GP_FIELD_TEXT(gp_slot, door),
    GP_FIELD_U32(gp_slot, device_kind, GP_DEVICE_NONE, GP_DEVICE_CUDA),
    GP_FIELD_U32(gp_slot, device_index, 0, GP_DEVICE_INDEX_MAX),
    GP_FIELD_TEXT(gp_slot, device_uuid),
    GP_FIELD_PROSE(gp_slot, device_name),
    GP_FIELD_TEXT(gp_slot, cores),
    GP_FIELD_U32(gp_slot, core_count, 0, GP_CORES_MAX),
    GP_FIELD_BOOL(gp_slot, shared),
    GP_FIELD_PROSE(gp_slot, log),
    GP_FIELD_END,
};

const gp_field gp_status_get_fields[] = { GP_FIELD_END };

const gp_field gp_worker_row_fields[] = {
    GP_FIELD_STRUCT(gp_worker_row, slot, gp_slot_fields),
    GP_FIELD_U32(gp_worker_row, state, GP_WORKER_STARTING, GP_WORKER_DEAD),
    GP_FIELD_PROSE(gp_worker_row, reason),
    GP_FIELD_U64(gp_worker_row, lease, 0, UINT64_MAX),
    GP_FIELD_U64(gp_worker_row, step, 0, GP_STEPS_MAX),
    GP_FIELD_U64_OPTIONAL(gp_worker_row, silent_ms, 0, GP_DURATION_MS_MAX, 0),
    GP_FIELD_END,
};

const gp_field gp_lease_row_fields[] = {
    GP_FIELD_U64(gp_lease_row, lease, 1, UINT64_MAX),
    GP_FIELD_U32(gp_lease_row, generation, 0, GP_GENERATION_MAX),
    GP_FIELD_U32(gp_lease_row, client_pid, 0, GP_PID_MAX),
    GP_FIELD_U32(gp_lease_row, state, GP_LEASE_QUEUED, GP_LEASE_GRANTED),
    GP_FIELD_PROSE(gp_lease_row, purpose),
    GP_FIELD_U32(gp_lease_row, workers, 0, GP_WORKERS_MAX),
    GP_FIELD_U64(gp_lease_row, age_ms, 0, GP_DURATION_MS_MAX),
    GP_FIELD_END,
};

const gp_field gp_status_reply_fields[] = {
    GP_FIELD_TEXT(gp_status_reply, pool),
    GP_FIELD_U32(gp_status_reply, scheduler_pid, 1, GP_PID_MAX),
    GP_FIELD_U64(gp_status_reply, uptime_ms, 0, GP_DURATION_MS_MAX),
    GP_FIELD_U64(gp_status_reply, epoch, 0, UINT64_MAX),
    GP_FIELD_U64(gp_status_reply, idle_timeout_ms, 0, GP_DURATION_MS_MAX),
    GP_FIELD_BOOL(gp_status_reply, accepting),
    GP_FIELD_LIST(gp_status_reply, workers, gp_worker_row_fields, GP_WORKERS_MAX),
    GP_FIELD_LIST(gp_status_reply, leases, gp_lease_row_fields, GP_LEASES_MAX),
    GP_FIELD_TEXT_OPTIONAL(gp_status_reply, listen),
    GP_FIELD_U32_OPTIONAL(gp_status_reply, remote_links, 0, GP_REMOTE_LINKS_MAX, 0),
    GP_FIELD_U64_OPTIONAL(gp_status_reply, remote_refused, 0, UINT64_MAX, 0),
    GP_FIELD_U64_OPTIONAL(gp_status_reply, remote_cut, 0, UINT64_MAX, 0),
    GP_FIELD_END,
};

const gp_field gp_devices_get_fields[] = { GP_FIELD_END };

const gp_field gp_devices_reply_fields[] = {
    GP_FIELD_U32(gp_devices_reply, cores, 0, GP_CORES_MAX),
    GP_FIELD_END,
};

const gp_field gp_lease_ask_fields[] = {
    GP_FIELD_U32(gp_lease_ask, workers_min, 0, GP_MEMBERS_MAX),
    GP_FIELD_U32(gp_lease_ask, workers_max, 0, GP_MEMBERS_MAX),
    GP_FIELD_TEXT(gp_lease_ask, devices),
    GP_FIELD_U32(gp_lease_ask, environment, GP_ENV_ANY, GP_ENV_GPU),
    GP_FIELD_PROSE(gp_lease_ask, purpose),
    GP_FIELD_I32(gp_lease_ask, priority, -GP_PRIORITY_MAX, GP_PRIORITY_MAX),
    GP_FIELD_BOOL(gp_lease_ask, wait),
    GP_FIELD_U32_OPTIONAL(gp_lease_ask, workers_floor, 0, GP_MEMBERS_MAX, 0),
    GP_FIELD_END,
};

const gp_field gp_lease_wait_fields[] = {
    GP_FIELD_U32(gp_lease_wait, position, 1, GP_LEASES_MAX),
    GP_FIELD_PROSE(gp_lease_wait, reason),
    GP_FIELD_END,
};

const gp_field gp_lease_leave_fields[] = { GP_FIELD_END };

const gp_field gp_lease_grant_fields[] = {
    GP_FIELD_BIN16(gp_lease_grant, token),
    GP_FIELD_LIST(gp_lease_grant, slots, gp_slot_fields, GP_MEMBERS_MAX),
    GP_FIELD_END,
};

const gp_field gp_lease_release_fields[] = { GP_FIELD_END };

const gp_field gp_lease_ended_fields[] = {
    GP_FIELD_PROSE(gp_lease_ended, reason),
    GP_FIELD_U32_OPTIONAL(gp_lease_ended, code, 0, UINT32_MAX, 0),
    GP_FIELD_END,
};

const gp_field gp_worker_lost_fields[] = {
    GP_FIELD_U32(gp_worker_lost, index, 1, GP_WORKERS_MAX),
    GP_FIELD_U32(gp_worker_lost, incarnation, 1, GP_INCARNATION_MAX),
    GP_FIELD_I32(gp_worker_lost, signal, -1, 64),
    GP_FIELD_I32(gp_worker_lost, exit_code, -1, 255),
    GP_FIELD_PROSE(gp_worker_lost, cause),
    GP_FIELD_PROSE(gp_worker_lost, log),
    GP_FIELD_U64(gp_worker_lost, step, 0, GP_STEPS_MAX),
    GP_FIELD_U32_OPTIONAL(gp_worker_lost, out_of_memory, 0, 1, 0),
    GP_FIELD_END,
};

const gp_field gp_worker_suspect_fields[] = {
    GP_FIELD_U32(gp_worker_suspect, index, 1, GP_WORKERS_MAX),
    GP_FIELD_U32(gp_worker_suspect, incarnation, 1, GP_INCARNATION_MAX),
    GP_FIELD_U64(gp_worker_suspect, silent_ms, 0, GP_DURATION_MS_MAX),
    GP_FIELD_PROSE(gp_worker_suspect, text),
    GP_FIELD_END,
};

const gp_field gp_resize_fields[] = {
    GP_FIELD_U32(gp_resize, workers, 0, GP_WORKERS_MAX),
    GP_FIELD_TEXT(gp_resize, devices),
    GP_FIELD_U64(gp_resize, idle_timeout_ms, 0, GP_DURATION_MS_MAX),
    GP_FIELD_END,
};

const gp_field gp_worker_replace_fields[] = {
    GP_FIELD_U32(gp_worker_replace, index, 1, GP_WORKERS_MAX),
    GP_FIELD_U32(gp_worker_replace, incarnation, 1, UINT32_MAX),
    GP_FIELD_TEXT(gp_worker_replace, reason),
    GP_FIELD_END,
};

const gp_field gp_lease_member_fields[] = {
    GP_FIELD_U32(gp_lease_member, index, 1, GP_WORKERS_MAX),
    GP_FIELD_U32(gp_lease_member, incarnation, 1, GP_INCARNATION_MAX),
    GP_FIELD_END,
};

const gp_field gp_lease_claim_fields[] = {
    GP_FIELD_BIN16(gp_lease_claim, token),
    GP_FIELD_U32(gp_lease_claim, workers_min, 0, GP_MEMBERS_MAX),
    GP_FIELD_PROSE(gp_lease_claim, purpose),
    GP_FIELD_LIST(gp_lease_claim, members, gp_lease_member_fields, GP_MEMBERS_MAX),
    GP_FIELD_U32_OPTIONAL(gp_lease_claim, workers_floor, 0, GP_MEMBERS_MAX, 0),
    GP_FIELD_U32_OPTIONAL(gp_lease_claim, workers_max, 0, GP_MEMBERS_MAX, 0),
    GP_FIELD_U32_OPTIONAL(gp_lease_claim, environment, GP_ENV_ANY, GP_ENV_GPU, GP_ENV_ANY),
    GP_FIELD_END,
};

const gp_field gp_lease_resize_fields[] = {
    GP_FIELD_U64(gp_lease_resize, lease, 0, UINT64_MAX),
    GP_FIELD_U64(gp_lease_resize, job, 0, UINT64_MAX),
    GP_FIELD_U32(gp_lease_resize, workers, 1, GP_MEMBERS_MAX),
    GP_FIELD_END,
};

const gp_field gp_lease_change_fields[] = {
    GP_FIELD_U32(gp_lease_change, workers, 1, GP_MEMBERS_MAX),
    GP_FIELD_BOOL(gp_lease_change, asked),
    GP_FIELD_LIST_OPTIONAL(gp_lease_change, joining, gp_slot_fields, GP_MEMBERS_MAX),
    GP_FIELD_END,
};

const gp_field gp_lease_form_fields[] = {
    GP_FIELD_U64_OPTIONAL(gp_lease_form, joining, 0, UINT64_MAX, UINT64_MAX),
    GP_FIELD_END,
};

const gp_field gp_shutdown_fields[] = {
    GP_FIELD_BOOL(gp_shutdown, when_idle),
    GP_FIELD_END,
};
