/* Field tables for messages between client and scheduler about background jobs. messages.h
 * describes the fields. */
#include "proto/message/tables.h"

const gp_field gp_job_row_fields[] = {
    GP_FIELD_U64(gp_job_row, job, 1, UINT64_MAX),
    GP_FIELD_PROSE(gp_job_row, name),
    GP_FIELD_PROSE(gp_job_row, command),
    GP_FIELD_U32(gp_job_row, state, GP_JOB_ROW_QUEUED, GP_JOB_ROW_LOST),
    GP_FIELD_I32(gp_job_row, priority, -GP_PRIORITY_MAX, GP_PRIORITY_MAX),
    GP_FIELD_U32(gp_job_row, attempts, 0, 1000),
    GP_FIELD_BOOL(gp_job_row, cancel),
    GP_FIELD_U32(gp_job_row, pid, 0, GP_PID_MAX),
    GP_FIELD_U32(gp_job_row, workers, 0, GP_WORKERS_MAX),
    GP_FIELD_U32(gp_job_row, exit, GP_JOB_EXIT_NONE, GP_JOB_EXIT_UNKNOWN),
    GP_FIELD_U32(gp_job_row, number, 0, 255),
    GP_FIELD_U64(gp_job_row, age_ms, 0, GP_DURATION_MS_MAX),
    GP_FIELD_U64(gp_job_row, run_ms, 0, GP_DURATION_MS_MAX),
    GP_FIELD_U64(gp_job_row, ended_ms, 0, GP_DURATION_MS_MAX),
    GP_FIELD_PROSE(gp_job_row, reason),
    GP_FIELD_U64_OPTIONAL(gp_job_row, submitted_ms, 0, INT64_MAX, 0),
    GP_FIELD_END,
};

const gp_field gp_job_put_fields[] = {
    GP_FIELD_BIN16(gp_job_put, submitter),
    GP_FIELD_U64(gp_job_put, seq, 0, INT64_MAX),
    GP_FIELD_PROSE(gp_job_put, name),
    GP_FIELD_I32(gp_job_put, priority, -GP_PRIORITY_MAX, GP_PRIORITY_MAX),
    GP_FIELD_U32(gp_job_put, umask, 0, 0777),
    GP_FIELD_END,
};

const gp_field gp_job_accepted_fields[] = {
    GP_FIELD_U64(gp_job_accepted, job, 1, UINT64_MAX),
    GP_FIELD_BOOL(gp_job_accepted, known),
    GP_FIELD_END,
};

const gp_field gp_jobs_get_fields[] = {
    GP_FIELD_U64(gp_jobs_get, before, 0, UINT64_MAX),
    GP_FIELD_U32(gp_jobs_get, states, 0, 511),
    GP_FIELD_U32(gp_jobs_get, count, 1, GP_JOB_ROWS_MAX),
    GP_FIELD_END,
};

const gp_field gp_jobs_reply_fields[] = {
    GP_FIELD_LIST(gp_jobs_reply, rows, gp_job_row_fields, GP_JOB_ROWS_MAX),
    GP_FIELD_BOOL(gp_jobs_reply, more),
    GP_FIELD_U32(gp_jobs_reply, queued, 0, GP_JOBS_MAX),
    GP_FIELD_U32(gp_jobs_reply, running, 0, GP_JOBS_MAX),
    GP_FIELD_U32(gp_jobs_reply, done, 0, GP_JOBS_MAX),
    GP_FIELD_U32(gp_jobs_reply, failed, 0, GP_JOBS_MAX),
    GP_FIELD_U32(gp_jobs_reply, canceled, 0, GP_JOBS_MAX),
    GP_FIELD_U32(gp_jobs_reply, lost, 0, GP_JOBS_MAX),
    GP_FIELD_END,
};

const gp_field gp_job_ask_fields[] = {
    GP_FIELD_U64(gp_job_ask, job, 1, UINT64_MAX),
    GP_FIELD_END,
};

const gp_field gp_job_reply_fields[] = {
    GP_FIELD_STRUCT(gp_job_reply, row, gp_job_row_fields),
    GP_FIELD_PROSE(gp_job_reply, folder),
    GP_FIELD_END,
};

const gp_field gp_job_stop_fields[] = {
    GP_FIELD_U64(gp_job_stop, job, 0, UINT64_MAX),
    GP_FIELD_END,
};

const gp_field gp_job_stopping_fields[] = {
    GP_FIELD_U32(gp_job_stopping, count, 0, GP_JOBS_MAX),
    GP_FIELD_END,
};

const gp_field gp_job_watch_fields[] = {
    GP_FIELD_U64(gp_job_watch, job, 0, UINT64_MAX),
    GP_FIELD_END,
};

const gp_field gp_job_changed_fields[] = {
    GP_FIELD_STRUCT(gp_job_changed, row, gp_job_row_fields),
    GP_FIELD_BOOL(gp_job_changed, missed),
    GP_FIELD_END,
};

const gp_field gp_job_read_fields[] = {
    GP_FIELD_U64(gp_job_read, job, 1, UINT64_MAX),
    GP_FIELD_U32(gp_job_read, file, GP_JOB_FILE_LOG, GP_JOB_FILE_WORKER_LOG),
    GP_FIELD_U32_OPTIONAL(gp_job_read, worker, 0, GP_WORKERS_MAX, 0),
    GP_FIELD_U64(gp_job_read, offset, 0, INT64_MAX),
    GP_FIELD_U32(gp_job_read, bytes, 1, GP_JOB_PIECE_BYTES_MAX),
    GP_FIELD_END,
};

const gp_field gp_job_piece_fields[] = {
    GP_FIELD_U64(gp_job_piece, offset, 0, INT64_MAX),
    GP_FIELD_U64(gp_job_piece, size, 0, INT64_MAX),
    GP_FIELD_U64(gp_job_piece, file, 0, UINT64_MAX),
    GP_FIELD_END,
};
