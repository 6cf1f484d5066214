/* Field tables for messages between client and worker: attach, and one training run. messages.h
 * describes the fields. */
#include "proto/message/tables.h"

const gp_field gp_attach_fields[] = {
    GP_FIELD_BIN16(gp_attach, token),
    GP_FIELD_U32(gp_attach, client_pid, 1, GP_PID_MAX),
    GP_FIELD_END,
};

const gp_field gp_train_begin_fields[] = {
    GP_FIELD_TEXT(gp_train_begin, data),
    GP_FIELD_TEXT(gp_train_begin, validation_data),
    GP_FIELD_U32(gp_train_begin, workers, 1, GP_MEMBERS_MAX),
    GP_FIELD_U64(gp_train_begin, seed, 0, UINT64_MAX),
    GP_FIELD_U32(gp_train_begin, restart, 0, UINT32_MAX),
    GP_FIELD_U32_OPTIONAL(gp_train_begin, prepare, 0, 1, 0),
    GP_FIELD_END,
};

const gp_field gp_train_ready_fields[] = {
    GP_FIELD_U32(gp_train_ready, rank, 0, GP_MEMBERS_MAX - 1),
    GP_FIELD_U32(gp_train_ready, world, 1, GP_MEMBERS_MAX),
    GP_FIELD_U64(gp_train_ready, samples, 1, GP_SAMPLES_MAX),
    GP_FIELD_U64(gp_train_ready, validation_samples, 0, GP_SAMPLES_MAX),
    GP_FIELD_U32(gp_train_ready, steps_per_epoch, 1, UINT32_MAX),
    GP_FIELD_U32(gp_train_ready, batch, 1, GP_BATCH_MAX),
    GP_FIELD_U32(gp_train_ready, batch_rank, 0, GP_BATCH_MAX),
    GP_FIELD_U64(gp_train_ready, parameters, 0, GP_PARAMETERS_MAX),
    GP_FIELD_U64(gp_train_ready, memory_bytes, 0, GP_MEMORY_MAX),
    GP_FIELD_F64(gp_train_ready, ready_ms, 0.0, GP_SECONDS_MAX * 1e3),
    GP_FIELD_U32(gp_train_ready, classes, 0, GP_CLASSES_MAX),
    GP_FIELD_U64(gp_train_ready, step, 0, UINT64_MAX),
    GP_FIELD_F64_OPTIONAL(gp_train_ready, data_ms, 0.0, GP_SECONDS_MAX * 1e3, 0),
    GP_FIELD_F64_OPTIONAL(gp_train_ready, network_ms, 0.0, GP_SECONDS_MAX * 1e3, 0),
    GP_FIELD_END,
};

const gp_field gp_train_record_fields[] = {
#define GP_METRIC(type, name, place, key, form, kind, ...)                                                   \
    GP_FIELD_##kind(gp_train_record, name, ##__VA_ARGS__),
#include "proto/message/step_fields.def"
    GP_FIELD_END,
};

const gp_field gp_train_steps_fields[] = {
    GP_FIELD_LIST(gp_train_steps, records, gp_train_record_fields, GP_RECORDS_MAX),
    GP_FIELD_U64(gp_train_steps, dropped, 0, GP_STEPS_MAX),
    GP_FIELD_END,
};

const gp_field gp_train_validation_fields[] = {
#define GP_METRIC(type, name, place, key, form, kind, ...)                                                   \
    GP_FIELD_##kind(gp_train_validation, name, ##__VA_ARGS__),
#include "proto/message/validation_fields.def"
    GP_FIELD_END,
};

const gp_field gp_train_stop_fields[] = {
    GP_FIELD_BOOL(gp_train_stop, hard),
    GP_FIELD_U32_OPTIONAL(gp_train_stop, pause, 0, 1, 0),
    GP_FIELD_END,
};

const gp_field gp_train_done_fields[] = {
    GP_FIELD_STATUS(gp_train_done, status, 0),
    GP_FIELD_PROSE(gp_train_done, message),
    GP_FIELD_U32(gp_train_done, stop_reason, GP_STOP_COMPLETED, GP_STOP_PAUSED),
    GP_FIELD_U64(gp_train_done, step, 0, GP_STEPS_MAX),
    GP_FIELD_U32(gp_train_done, epoch, 0, GP_EPOCHS_MAX),
    GP_FIELD_F64_ANY(gp_train_done, loss),
    GP_FIELD_U64(gp_train_done, skipped, 0, GP_SAMPLES_MAX),
    GP_FIELD_PROSE(gp_train_done, skipped_names),
    GP_FIELD_END,
};

const gp_field gp_train_note_fields[] = {
    GP_FIELD_TEXT(gp_train_note, text),
    GP_FIELD_BOOL(gp_train_note, warning),
    GP_FIELD_END,
};

const gp_field gp_train_validating_fields[] = {
    GP_FIELD_U64(gp_train_validating, step, 0, GP_STEPS_MAX),
    GP_FIELD_U64(gp_train_validating, done, 0, GP_SAMPLES_MAX),
    GP_FIELD_U64(gp_train_validating, count, 0, GP_SAMPLES_MAX),
    GP_FIELD_U64(gp_train_validating, excluded, 0, (uint64_t)1 << 50),
    GP_FIELD_F64(gp_train_validating, seconds, 0.0, GP_SECONDS_MAX),
    GP_FIELD_END,
};
