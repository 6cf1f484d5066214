/* Convert steps and validations to lines of metrics.jsonl and back. The tables are generated from
 * step_fields.def and validation_fields.def. */
#include "client/runs/metrics_line.h"

#include <math.h>
#include <stddef.h>

/* C type of a metric. */
typedef enum metric_type { TYPE_BOOL, TYPE_U32, TYPE_U64, TYPE_F64 } metric_type;

/* Position in the line: first members, later members, or the "time" object at the end. */
typedef enum metric_place { HEAD, BODY, TIME, PLACE_COUNT } metric_place;

/* Metric output format and condition. */
typedef enum metric_form { EXACT, IF_FINITE, IF_NONZERO, SECONDS, RATE, MS } metric_form;

/* Decimals of a fixed number; 0: not a fixed number. */
static const unsigned decimals[] = { [SECONDS] = 6, [RATE] = 0, [MS] = 4 };

/* A member of a line: key, type, position, format, and where the record holds it. */
struct metric {
    const char *key; /* NULL: end of the table */
    metric_type type;
    metric_place place;
    metric_form form;
    size_t offset;
};

/* clang-format off */
#define TYPE_OF(value) \
    _Generic((value), bool: TYPE_BOOL, uint32_t: TYPE_U32, uint64_t: TYPE_U64, double: TYPE_F64)
#define METRIC(record, name, place, key, form) \
    { key, TYPE_OF(((record *)0)->name), place, form, offsetof(record, name) },

/* clang-format on */

static const metric step_metrics[] = {
#define GP_METRIC_LOCAL(name, place, key, form)      METRIC(gp_train_step, name, place, key, form)
#define GP_METRIC(type, name, place, key, form, ...) METRIC(gp_train_step, name, place, key, form)
#include "proto/message/step_fields.def"
    { .key = NULL },
};

static const metric validation_metrics[] = {
#define GP_METRIC_LOCAL(name, place, key, form) METRIC(gp_train_validation_result, name, place, key, form)
#define GP_METRIC(type, name, place, key, form, ...)                                                         \
    METRIC(gp_train_validation_result, name, place, key, form)
#include "proto/message/validation_fields.def"
    { .key = NULL },
};

const metric *const metrics_of_step = step_metrics;
const metric *const metrics_of_validation = validation_metrics;

/* Write one metric, unless the form omits the value. */
static void put_one(gp_json_writer *writer, const metric *m, const void *at)
{
    const double number = m->type == TYPE_F64   ? *(const double *)at
                          : m->type == TYPE_U64 ? (double)*(const uint64_t *)at
                          : m->type == TYPE_U32 ? *(const uint32_t *)at
                                                : *(const bool *)at;

    if ((m->form == IF_FINITE && !isfinite(number)) || (m->form == IF_NONZERO && !(number > 0)))
        return;
    if (m->type == TYPE_BOOL)
        gp_json_put_bool(writer, m->key, number > 0);
    else if (m->type != TYPE_F64)
        gp_json_put_integer(writer, m->key, (int64_t)number);
    else if (decimals[m->form] > 0)
        gp_json_put_fixed(writer, m->key, decimals[m->form], number);
    else if (m->form == RATE)
        gp_json_put_rounded(writer, m->key, "%.10g", number);
    else
        gp_json_put_number(writer, m->key, number);
}

void metrics_put(gp_json_writer *writer, const metric *table, const void *record)
{
    unsigned depth;

    gp_json_begin_object(writer, NULL);
    depth = writer->depth;
    for (metric_place place = HEAD; place < PLACE_COUNT; place++)
        for (const metric *m = table; m->key != NULL; m++) {
            if (m->place == place && place == TIME && writer->depth == depth)
                gp_json_begin_object(writer, "time");
            if (m->place == place)
                put_one(writer, m, (const char *)record + m->offset);
        }
    while (writer->depth >= depth)
        gp_json_end_object(writer);
}

void metrics_get(void *record, const metric *table, const gp_json *line)
{
    const gp_json *time = gp_json_member(line, "time");

    for (const metric *m = table; m->key != NULL; m++) {
        const gp_json *value = gp_json_member(m->place == TIME ? time : line, m->key);
        const int64_t whole = gp_json_integer(value, gp_json_bool(value, false));
        void *at = (char *)record + m->offset;

        if (m->type == TYPE_F64)
            *(double *)at = gp_json_number(value, m->form == IF_NONZERO ? 0 : NAN);
        else if (m->type == TYPE_U64)
            *(uint64_t *)at = whole < 0 ? 0 : (uint64_t)whole;
        else if (m->type == TYPE_U32)
            *(uint32_t *)at = whole < 0 ? 0 : (uint32_t)whole;
        else
            *(bool *)at = whole > 0;
    }
}

/* ---- phases of a step ---- */

/* clang-format off */
#define NAME_HEAD(name, key)
#define NAME_BODY(name, key)
#define NAME_TIME(name, key) [STEP_PHASE_##name] = key,
#define SUM_HEAD(name)
#define SUM_BODY(name)
#define SUM_TIME(name) sums[STEP_PHASE_##name] += step->name;

const char *const step_phase_names[STEP_PHASES] = {
#define GP_METRIC(type, name, place, key, ...) NAME_##place(name, key)
#include "proto/message/step_fields.def"
};

void step_phases_add(double sums[STEP_PHASES], const gp_train_step *step)
{
#define GP_METRIC(type, name, place, ...) SUM_##place(name)
#include "proto/message/step_fields.def"
}

/* clang-format on */
