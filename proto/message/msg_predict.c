/* Field tables for messages between client and worker for prediction. messages.h describes the
 * fields. */
#include "common/base/memory/tensor.h"
#include "proto/message/tables.h"

const gp_field gp_predict_begin_fields[] = {
    GP_FIELD_TEXT(gp_predict_begin, data),
    GP_FIELD_U32(gp_predict_begin, batch, 1, GP_BATCH_MAX),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, precision, 0, GP_PRECISION_COUNT - 1, 0),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, answer, 0, GP_ANSWER_COUNT - 1, GP_ANSWER_SCORES),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, floats, 0, 1, 0),
    GP_FIELD_U64_OPTIONAL(gp_predict_begin, samples, 0, GP_SAMPLES_MAX, 0),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, image_height, 0, GP_PREDICT_SIDE_MAX, 0),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, image_width, 0, GP_PREDICT_SIDE_MAX, 0),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, whole, 0, 1, 0),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, overlap, 0, GP_PREDICT_SIDE_MAX, 0),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, crop, 0, GP_PREDICT_CROP_COUNT - 1, GP_PREDICT_ALL),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, on_bad, 0, 1, 0),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, ignore_labels, 0, 1, 0),
    GP_FIELD_U32_OPTIONAL(gp_predict_begin, exact_size, 0, 1, 0),
    GP_FIELD_END,
};

const gp_field gp_predict_ready_fields[] = {
    GP_FIELD_U64(gp_predict_ready, samples, 0, GP_SAMPLES_MAX),
    GP_FIELD_U32(gp_predict_ready, classes, 1, GP_SCORES_MAX),
    GP_FIELD_BOOL(gp_predict_ready, has_labels),
    GP_FIELD_U32_OPTIONAL(gp_predict_ready, micro_batch, 1, GP_BATCH_MAX, 1),
    GP_FIELD_END,
};

const gp_field gp_predict_ask_fields[] = {
    GP_FIELD_U64(gp_predict_ask, first, 0, GP_SAMPLES_MAX),
    GP_FIELD_U32(gp_predict_ask, count, 1, GP_BATCH_MAX),
    GP_FIELD_END,
};

const gp_field gp_predict_part_fields[] = {
    GP_FIELD_U64(gp_predict_part, first, 0, GP_SAMPLES_MAX),
    GP_FIELD_U32(gp_predict_part, count, 1, GP_BATCH_MAX),
    GP_FIELD_F64_ANY(gp_predict_part, loss),
    GP_FIELD_F64(gp_predict_part, correct, 0.0, 1e15),
    GP_FIELD_F64(gp_predict_part, weight, 0.0, 1e15),
    GP_FIELD_F64(gp_predict_part, classed, 0.0, 1e15),
    GP_FIELD_F64_ANY(gp_predict_part, squares),
    GP_FIELD_F64(gp_predict_part, values, 0.0, 1e15),
    GP_FIELD_U32(gp_predict_part, labelled, 0, GP_BATCH_MAX),
    GP_FIELD_U64_OPTIONAL(gp_predict_part, excluded, 0, (uint64_t)1 << 50, 0),
    GP_FIELD_END,
};

const gp_field gp_predict_end_fields[] = { GP_FIELD_END };
