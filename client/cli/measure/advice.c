/* Training performance model: fit, prediction, cache file, and comparison with real trainings.
 * advice.h describes the model. */
#include "client/cli/measure/advice.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <sha2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/cached.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "common/data/store/store.h"
#include "common/model/network.h"
#include "common/model/train_options.h"

enum { BYTES_MAX = 1 << 16 };

/* a run that reaches this fraction of the expected rate needs no explanation */
static const double NEAR = 0.9;

void advice_fit(advice_model *model, const advice_times *times)
{
    const double samples = (double)times->share_b - times->share_a;

    model->sample_s = samples > 0 ? (times->step_b_s - times->step_a_s) / samples : 0;
    /* measurement noise: attribute the whole larger step to the samples */
    if (model->sample_s <= 0)
        model->sample_s = times->step_b_s / times->share_b;
    model->fixed_s = times->step_b_s - model->sample_s * times->share_b;
    if (model->fixed_s < 0) {
        model->fixed_s = 0;
        model->sample_s = times->step_b_s / times->share_b;
    }
    model->memory_sample_bytes = samples > 0 ? (times->memory_b - times->memory_a) / samples : 0;
    if (model->memory_sample_bytes < 0)
        model->memory_sample_bytes = 0;
    model->memory_bytes = times->memory_b - model->memory_sample_bytes * times->share_b;
}

/* Interpolate the exchange time for a worker count. Beyond the last measured point, extrapolate
 * through the last two points. With a single point, the second is (1 worker, 0 s). */
static double exchange_of(const advice_model *model, uint32_t workers)
{
    struct advice_point before = { 1, 0 }, after = { 1, 0 };

    if (workers == 1 || model->point_count == 0)
        return 0;
    for (uint32_t i = 0; i < model->point_count; i++) {
        before = after;
        after = model->points[i];
        if (after.workers >= workers)
            break;
    }
    double slope = (after.exchange_s - before.exchange_s) / ((double)after.workers - before.workers);

    if (slope < 0 && workers > after.workers)
        slope = 0; /* noise must not predict a cheaper exchange on more workers */
    return after.exchange_s + slope * ((double)workers - after.workers);
}

advice_row advice_predict(const advice_model *model, uint32_t workers)
{
    const uint32_t batch = model->per_worker ? model->batch * workers : model->batch;
    advice_row row = { .workers = workers, .batch = batch, .share = (batch + workers - 1) / workers };
    const double n = workers,
                 one_s = model->fixed_s + model->sample_s * (model->per_worker ? row.share : batch);

    row.exchange_s = exchange_of(model, workers);
    row.step_s = model->fixed_s + model->sample_s * row.share + row.exchange_s;
    row.rate = batch / row.step_s;
    row.efficiency = (row.rate / n) / ((model->per_worker ? row.share : batch) / one_s);
    row.memory_bytes = model->memory_bytes + model->memory_sample_bytes * row.share;
    row.extrapolated =
        workers > 1 && (model->point_count == 0 || workers > model->points[model->point_count - 1].workers);
    /* Smallest batch with an efficiency of 0.8. For a fixed total batch B, solve (fixed + sample B)
     * / (n (fixed + sample B / n + exchange)) >= 0.8 for B. For a batch b per worker, solve (fixed
     * + sample b) / (fixed + sample b + exchange) >= 0.8; B = n b. */
    if (model->per_worker)
        row.batch_80 = n * (4 * row.exchange_s - model->fixed_s) / model->sample_s;
    else
        row.batch_80 =
            (0.8 * n * (model->fixed_s + row.exchange_s) - model->fixed_s) / (0.2 * model->sample_s);
    row.batch_80 = workers == 1 || row.batch_80 < n ? n : ceil(row.batch_80);
    return row;
}

uint32_t advice_best(const advice_model *model, uint32_t most)
{
    double highest = 0;
    uint32_t best = 1;

    for (uint32_t n = 1; n <= most; n++)
        highest = fmax(highest, advice_predict(model, n).rate);
    while (best < most && advice_predict(model, best).rate < 0.98 * highest)
        best++;
    return best;
}

/* ---- cache file ---- */

/* Append formatted text to a key. */
__attribute__((format(printf, 2, 3))) static void key_add(advice_key *key, const char *format, ...)
{
    size_t used = strlen(key->text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(key->text + used, sizeof(key->text) - used, format, arguments);
    va_end(arguments);
}

uint32_t advice_batch(const char *const *options, bool *per_worker)
{
    gp_train_options values;

    gp_train_options_from_checked(&values, options);
    *per_worker = values.mini_batch_size_per_worker > 0;
    return (uint32_t)(*per_worker ? values.mini_batch_size_per_worker : values.mini_batch_size);
}

/* The key lists only options that change the step time. A network file is identified by path, size
 * and modification time. */
void advice_key_of(advice_key *out, const char *network, const char *data, const char *const *options)
{
    static const char *const timed[] = {
        "solver",           "reproducible",          "precision",
        "micro-batch-size", "exchange-bucket-bytes", "synchronize-batch-norm"
    };
    char host[256] = "", path[PATH_MAX];
    struct stat info;
    bool per_worker;
    uint32_t batch = advice_batch(options, &per_worker);

    gethostname(host, sizeof(host) - 1);
    out->text[0] = '\0';
    key_add(out, "%s %ld\n%s\n", host, sysconf(_SC_NPROCESSORS_ONLN), data);
    if (gp_network_is_file(network) && realpath(network, path) != NULL && stat(path, &info) == 0)
        key_add(out, "%s %lld %lld\n", path, (long long)info.st_size, (long long)info.st_mtime);
    else
        key_add(out, "%s\n", network);
    key_add(out, "%" PRIu32 " %d\n", batch, per_worker);
    for (size_t i = 0; i < sizeof(timed) / sizeof(timed[0]); i++)
        for (const char *const *option = options; *option != NULL; option++)
            if (cli_option_is(*option, timed[i]))
                key_add(out, "%s\n", *option);
}

/* Return the cache path of a key; the file name is a SHA-256 prefix. */
static gp_status key_path(const advice_key *key, char *path, size_t bytes, gp_error *err)
{
    char digest[SHA256_DIGEST_STRING_LENGTH], name[SHA256_DIGEST_STRING_LENGTH + 8];
    SHA2_CTX sum;

    SHA256Init(&sum);
    SHA256Update(&sum, (const uint8_t *)key->text, strlen(key->text));
    SHA256End(&sum, digest);
    snprintf(name, sizeof(name), "%.32s.json", digest);
    return gp_cache_path(path, bytes, "advice", name, err);
}

void advice_put(gp_json_writer *writer, const advice_model *model)
{
    gp_json_put_integer(writer, "batch", model->batch);
    gp_json_put_bool(writer, "per_worker", model->per_worker);
    gp_json_put_number(writer, "fixed_seconds", model->fixed_s);
    gp_json_put_number(writer, "sample_seconds", model->sample_s);
    gp_json_put_number(writer, "memory_bytes", model->memory_bytes);
    gp_json_put_number(writer, "memory_sample_bytes", model->memory_sample_bytes);
    gp_json_put_number(writer, "gradient_bytes", model->gradient_bytes);
    gp_json_begin_array(writer, "exchange");
    for (uint32_t i = 0; i < model->point_count; i++) {
        gp_json_begin_object(writer, NULL);
        gp_json_put_integer(writer, "workers", model->points[i].workers);
        gp_json_put_number(writer, "seconds", model->points[i].exchange_s);
        gp_json_end_object(writer);
    }
    gp_json_end_array(writer);
}

gp_status advice_save(const advice_key *key, const advice_model *model, gp_error *err)
{
    char path[PATH_MAX];
    json_document json;
    gp_status status = key_path(key, path, sizeof(path), err);

    if (status != GP_OK)
        return status;
    status = gp_directory_make_above(path, 0777, err);
    if (status != GP_OK)
        return status;
    gp_json_writer *writer = show_json_object(&json, true);

    gp_json_put_text(writer, "for", key->text);
    gp_json_put_bool(writer, "compared", model->compared);
    advice_put(writer, model);
    return show_json_write(&json, path, err);
}

/* Read a model from the cache. false: malformed, or written for another key with the same
 * digest. */
static bool model_read(advice_model *model, const gp_json *json, const advice_key *key)
{
    const gp_json *points = gp_json_member(json, "exchange");

    if (strcmp(gp_json_text(gp_json_member(json, "for"), ""), key->text) != 0)
        return false;
    *model = (advice_model){
        .batch = (uint32_t)gp_json_integer(gp_json_member(json, "batch"), 0),
        .per_worker = gp_json_bool(gp_json_member(json, "per_worker"), false),
        .fixed_s = gp_json_number(gp_json_member(json, "fixed_seconds"), -1),
        .sample_s = gp_json_number(gp_json_member(json, "sample_seconds"), -1),
        .memory_bytes = gp_json_number(gp_json_member(json, "memory_bytes"), 0),
        .memory_sample_bytes = gp_json_number(gp_json_member(json, "memory_sample_bytes"), 0),
        .gradient_bytes = gp_json_number(gp_json_member(json, "gradient_bytes"), 0),
        .compared = gp_json_bool(gp_json_member(json, "compared"), false),
    };
    for (size_t i = 0; i < gp_json_count(points) && i < ADVICE_POINTS_MAX; i++) {
        const gp_json *point = gp_json_element(points, i);
        const int64_t workers = gp_json_integer(gp_json_member(point, "workers"), 0);
        const double seconds = gp_json_number(gp_json_member(point, "seconds"), -1);

        if (workers <= (i == 0 ? 1 : model->points[i - 1].workers) || workers > ADVICE_WORKERS_MAX ||
            !(seconds >= 0))
            return false;
        model->points[model->point_count++] = (struct advice_point){ (uint32_t)workers, seconds };
    }
    return model->batch > 0 && model->fixed_s >= 0 && model->sample_s > 0;
}

gp_status advice_load(const advice_key *key, advice_model *out, gp_error *err)
{
    char path[PATH_MAX];
    uint8_t *data;
    size_t bytes;
    gp_json *json;
    gp_status status = key_path(key, path, sizeof(path), err);

    if (status == GP_OK)
        status = gp_file_read(&data, &bytes, path, BYTES_MAX, err);
    if (status != GP_OK)
        return status;
    status = gp_json_parse(&json, (const char *)data, bytes, err);
    gp_free(data);
    if (status != GP_OK)
        return status;
    if (!model_read(out, json, key))
        status = gp_fail(err, GP_ECORRUPT, "%s is not an advice file; remove it", path);
    gp_json_free(json);
    return status;
}

/* ---- comparison of a training with the advice ---- */

bool advice_watch_begin(advice_watch *watch, const char *network, const char *data,
                        const char *const *options, const gp_train_info *info, char *text, size_t bytes)
{
    *watch = (advice_watch){ .known = false };
    advice_key_of(&watch->key, network, data, options);
    if (advice_load(&watch->key, &watch->model, NULL) != GP_OK)
        return false;
    watch->known = true;
    watch->fresh = !watch->model.compared;
    watch->row = advice_predict(&watch->model, info->workers);
    const advice_row best = advice_predict(&watch->model, advice_best(&watch->model, info->workers));

    if (best.workers == info->workers)
        return false;
    snprintf(text, bytes,
             "more workers will not help: gradpool advise measured that %" PRIu32
             " are enough for this batch (%.0f images/s; %" PRIu32 " reach %.0f); --workers %" PRIu32
             " leaves the other workers free",
             best.workers, best.rate, info->workers, watch->row.rate, best.workers);
    return true;
}

void advice_watch_step(advice_watch *watch, const gp_train_step *step)
{
    watch->data_s += step->data_ms * 1e-3;
    watch->compute_s += (step->forward_ms + step->backward_ms + step->commit_ms) * 1e-3;
    watch->exchange_s += (step->exchange_ms + step->wait_ms) * 1e-3;
    watch->records++;
    if (step->rank != 0)
        return;
    if (watch->last_s > 0 && !watch->skip) {
        watch->sum_s += step->seconds - watch->last_s;
        watch->count++;
    }
    watch->last_s = step->seconds;
    watch->skip = false;
}

/* Format a number with thousands separators, e.g. "53,320". */
static const char *grouped(double value, char text[32])
{
    char digits[24];
    int count = snprintf(digits, sizeof(digits), "%.0f", value), used = 0;

    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

bool advice_watch_end(const advice_watch *watch, advice_result *result)
{
    char expected[32], measured[32], cause[200] = "";

    if (!watch->known || watch->count == 0)
        return false;
    *result = (advice_result){ .expected = watch->row.rate,
                               .measured = watch->row.batch * (double)watch->count / watch->sum_s,
                               .fresh = watch->fresh };
    const double share = result->measured / result->expected;

    if (share < NEAR) {
        /* Describe the phase that exceeded the expected time most. */
        const double records = (double)watch->records;
        const double data_s = watch->data_s / records, exchange_s = watch->exchange_s / records,
                     compute_s = watch->compute_s / records;
        const double exchange_more = exchange_s - watch->row.exchange_s,
                     compute_more = compute_s - (watch->row.step_s - watch->row.exchange_s);

        if (data_s >= exchange_more && data_s >= compute_more)
            snprintf(cause, sizeof(cause), "each step waited %.2f ms for data", data_s * 1e3);
        else if (exchange_more >= compute_more)
            snprintf(cause, sizeof(cause), "exchanging gradients took %.2f ms per step, expected %.2f ms",
                     exchange_s * 1e3, watch->row.exchange_s * 1e3);
        else
            snprintf(cause, sizeof(cause),
                     "computing took %.2f ms per step, expected %.2f ms; other processes may have used the "
                     "cores",
                     compute_s * 1e3, (watch->row.step_s - watch->row.exchange_s) * 1e3);
    }
    snprintf(result->text, sizeof(result->text),
             "advise expected %s images/s; this run reached %s (%.0f %%)%s%s",
             grouped(result->expected, expected), grouped(result->measured, measured), share * 100,
             cause[0] == '\0' ? "" : ": ", cause);
    if (watch->fresh) {
        advice_model model = watch->model;

        model.compared = true;
        /* ignore errors: the next training is then compared as well */
        advice_save(&watch->key, &model, NULL);
    }
    return true;
}
