/* trainer_group.c -- the group of a rank and the memory that is exchanged, and the plan that writes into it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "worker/train/memory.h"
#include "worker/train/trainer_state.h"

/* Lengthens the last bucket up to the wanted size, then begins others. */
static void bucket_append(gp_trainer *trainer, size_t first, size_t count, size_t wanted)
{
    while (count > 0) {
        bucket *last = trainer->bucket_count == 0 ? NULL : &trainer->buckets[trainer->bucket_count - 1];
        size_t room = wanted, part;

        if (last != NULL && last->first + last->count == first && last->count < wanted) {
            room -= last->count;
        } else {
            last = &trainer->buckets[trainer->bucket_count++];
            *last = (bucket){ .first = first };
        }
        part = count < room ? count : room;
        last->count += part;
        first += part;
        count -= part;
    }
}

/* Float32 elements.  Sums in shared memory are best while they fit a cache; between GPUs each costs some ten
 * microseconds, and the links are full from some ten MiB on. */
static size_t bucket_wanted(const gp_trainer *trainer)
{
    enum { DEVICE_BUCKET_BYTES = 25 << 20 };
    const gp_param *param = gp_params_find(gp_train_options_table, "exchange-bucket-bytes");
    bool given = gp_params_changed(param, &trainer->options);

    return (trainer->backend_ops->steps != NULL && !given ? DEVICE_BUCKET_BYTES
                                                          : (size_t)trainer->options.exchange_bucket_bytes) /
           sizeof(float);
}

/* Cut what ranks exchange of the blob into buckets of about the wanted size; the first completes first.  Frozen
 * tensors are left out. */
gp_status gp_trainer_cut_buckets(gp_trainer *trainer, gp_error *err)
{
    const gp_graph *graph = trainer->graph;
    size_t wanted = bucket_wanted(trainer);
    size_t most = graph->blob_count / wanted + graph->parameter_count + 1;

    trainer->buckets = gp_calloc(most, sizeof(*trainer->buckets));
    if (trainer->buckets == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu buckets", most);
    for (uint32_t end = graph->parameter_count, first; end > 0; end = first) { /* as they lie in the blob */
        first = end - 1;
        while (first > 0 && graph->parameters[first - 1].layer == graph->parameters[first].layer)
            first--;
        for (uint32_t p = first; p < end; p++) {
            const gp_parameter *parameter = &graph->parameters[p];

            if (gp_parameter_learns(parameter) || parameter->statistic != GP_STATISTIC_NONE)
                bucket_append(trainer, parameter->offset, (size_t)parameter->count, wanted);
        }
    }
    return GP_OK;
}

static gp_status take_own_sums(gp_trainer *trainer, gp_error *err)
{
    size_t count = trainer->graph->blob_count;

    trainer->own_sums = true;
    trainer->header = gp_aligned_calloc(64, HEADER_COUNT * sizeof(double));
    trainer->gradients = gp_aligned_calloc(64, count * sizeof(float));
    return trainer->header != NULL && trainer->gradients != NULL
               ? GP_OK
               : gp_fail(err, GP_ENOMEM, "no memory for gradients of %zu parameters", count);
}

/* With `reproducible`, what is exchanged is integers; the plan writes into memory of our own. */
static gp_status trainer_take_exact(gp_trainer *trainer, gp_error *err)
{
    size_t count = trainer->graph->blob_count;
    void *range;
    gp_status status =
        gp_comm_arena_alloc(trainer->comm, (EXACT_COUNT + 2 * count) * sizeof(int64_t), &range, err);

    if (status != GP_OK)
        return status;
    trainer->exact = range;
    return take_own_sums(trainer, err);
}

gp_status gp_trainer_join(gp_trainer *trainer, const gp_comm_rendezvous *group, gp_error *err)
{
    gp_comm_rendezvous rendezvous = *group;
    size_t header_bytes = HEADER_COUNT * sizeof(double),
           blob_bytes = trainer->graph->blob_count * sizeof(float);
    void *range;
    gp_status status = gp_comm_new(&trainer->comm, &gp_comm_shm, err);

    if (trainer->options.reproducible) {
        header_bytes = EXACT_COUNT * sizeof(int64_t);
        blob_bytes = 2 * trainer->graph->blob_count * sizeof(int64_t);
    }

    if (status != GP_OK)
        return status;
    rendezvous.arena_bytes = header_bytes + blob_bytes + 128; /* two ranges, each aligned to 64 bytes */
    if (gp_trainer_shards(trainer)) {
        rendezvous.arena_bytes += gp_trainer_shard_bytes(trainer) + gp_trainer_factor_bytes(trainer);
        rendezvous.sparse = true;
    }
    gp_train_control_set_comm(trainer->control, trainer->comm, rendezvous.generation);
    if (atomic_load(&trainer->control->stop) == 2)
        return gp_fail(err, GP_ECANCELED, "stopped before the training began");
    status = gp_comm_form(trainer->comm, &rendezvous, err);
    if (status == GP_OK && trainer->options.reproducible)
        return trainer_take_exact(trainer, err);
    if (status == GP_OK)
        status = gp_comm_arena_alloc(trainer->comm, header_bytes, &range, err);
    if (status != GP_OK)
        return status;
    trainer->header = range;
    status = gp_comm_arena_alloc(trainer->comm, blob_bytes, &range, err);
    if (status == GP_OK)
        trainer->gradients = range;
    return status;
}

/* Ranks whose blobs differ in layout must not add them up. */
gp_status gp_trainer_check_layout(gp_trainer *trainer, gp_error *err)
{
    int64_t hash = (int64_t)(gp_graph_layout_hash(trainer->graph) >> 1), seen[2] = { hash, -hash };
    gp_status status = gp_comm_all_reduce_private(trainer->comm, seen, 2, GP_I64, GP_COMM_MAX, err);

    if (status == GP_OK && (seen[0] != hash || seen[1] != -hash))
        return gp_fail(err, GP_EPROTO, "the ranks do not agree on the layout of network %s",
                       trainer->spec->name);
    return status;
}

/* What a rank has before it. */
typedef struct data_seen {
    uint64_t data, validation; /* fingerprints */
    uint64_t samples, validation_samples;
    char host[64];
} data_seen;

static data_seen data_see(const gp_trainer *trainer)
{
    const gp_store_info *data = gp_store_get_info(trainer->data);
    data_seen seen = { .data = data->fingerprint, .samples = data->count };

    if (trainer->validation != NULL) {
        seen.validation = gp_store_get_info(trainer->validation)->fingerprint;
        seen.validation_samples = gp_store_get_info(trainer->validation)->count;
    }
    gethostname(seen.host, sizeof(seen.host) - 1);
    return seen;
}

static bool data_same(const data_seen *a, const data_seen *b)
{
    return a->data == b->data && a->validation == b->validation && a->samples == b->samples &&
           a->validation_samples == b->validation_samples;
}

/* The rank that most agree with, the first of several. */
static uint32_t data_most(const data_seen *all, uint32_t world)
{
    uint32_t best = 0, most = 0;

    for (uint32_t i = 0; i < world; i++) {
        uint32_t same = 0;

        for (uint32_t k = 0; k < world; k++)
            same += data_same(&all[i], &all[k]);
        if (same > most) {
            most = same;
            best = i;
        }
    }
    return best;
}

static gp_status data_compare(const gp_trainer *trainer, const data_seen *all, gp_error *err)
{
    const data_seen *usual = &all[data_most(all, trainer->world)], *ours = &all[trainer->rank];
    bool training = ours->data != usual->data || ours->samples != usual->samples;
    const gp_store_info *info =
        gp_store_get_info(training || trainer->validation == NULL ? trainer->data : trainer->validation);

    if (!data_same(ours, usual))
        return gp_fail(err, GP_EINVAL,
                       "on %s the %s data %s differ from what other workers see on %s: %" PRIu64
                       " samples here, %" PRIu64 " there%s; let all workers see the same files",
                       ours->host, training ? "training" : "validation", info->source, usual->host,
                       training ? ours->samples : ours->validation_samples,
                       training ? usual->samples : usual->validation_samples,
                       (training ? ours->samples == usual->samples
                                 : ours->validation_samples == usual->validation_samples)
                           ? ", with other content"
                           : "");
    for (uint32_t rank = 0; rank < trainer->world; rank++)
        if (!data_same(&all[rank], usual))
            return gp_fail(err, GP_EPEER, "rank %" PRIu32 " of %" PRIu32 " sees other data", rank,
                           trainer->world);
    return GP_OK;
}

/* Ranks that see other files under the same name must not train together: the odd one says so. */
gp_status gp_trainer_check_data(gp_trainer *trainer, gp_error *err)
{
    data_seen *all = gp_calloc(trainer->world, sizeof(*all));
    size_t *parts = gp_calloc(trainer->world + 1, sizeof(*parts));
    gp_status status = GP_OK;

    if (all == NULL || parts == NULL)
        status =
            gp_fail(err, GP_ENOMEM, "no memory to compare the data of %" PRIu32 " workers", trainer->world);
    if (status == GP_OK) {
        for (uint32_t rank = 0; rank <= trainer->world; rank++)
            parts[rank] = rank * sizeof(*all);
        all[trainer->rank] = data_see(trainer);
        status = gp_comm_gather_private(trainer->comm, all, parts, err);
    }
    if (status == GP_OK)
        status = data_compare(trainer, all, err);
    gp_free(all);
    gp_free(parts);
    return status;
}

static gp_status coupling_reduce(void *context, size_t count, gp_error *err)
{
    gp_trainer *trainer = context;
    bool stretch = gp_train_control_rest(trainer->control);
    gp_status status =
        gp_comm_all_reduce_private(trainer->comm, trainer->coupling.sums, count, GP_F64, GP_COMM_SUM, err);

    if (stretch)
        gp_train_control_stretch(trainer->control);
    atomic_fetch_add_explicit(&trainer->control->progress, 1, memory_order_relaxed);
    return status;
}

const gp_coupling *gp_trainer_coupling(const gp_trainer *trainer)
{
    return trainer->coupling.sums == NULL ? NULL : &trainer->coupling;
}

gp_status gp_trainer_couple(gp_trainer *trainer, gp_error *err)
{
    int64_t widest = 0;

    for (uint32_t p = 0; p < trainer->graph->parameter_count; p++) {
        const gp_parameter *parameter = &trainer->graph->parameters[p];

        if (parameter->statistic != GP_STATISTIC_NONE && parameter->count > widest)
            widest = parameter->count;
    }
    if (widest == 0 && (trainer->options.synchronize_batch_norm ||
                        trainer->options.batch_norm_statistics != GP_STATISTICS_MOVING))
        return gp_fail(err, GP_EINVAL, "network %s has no batch norm; leave %s out", trainer->spec->name,
                       trainer->options.synchronize_batch_norm ? "synchronize-batch-norm"
                                                               : "batch-norm-statistics");
    if (!trainer->options.synchronize_batch_norm)
        return GP_OK;
    trainer->coupling = (gp_coupling){ .sums = gp_calloc(2 * (size_t)widest + 1, sizeof(double)),
                                       .reduce = coupling_reduce,
                                       .context = trainer };
    return trainer->coupling.sums == NULL ? gp_fail(err, GP_ENOMEM, "no memory for moments") : GP_OK;
}

/* Whether the calls fit into memory, before any of it is touched: all ranks come to the same end.  Measured only where
 * the bound is not far below what there is.  Ranks share one host. */
static gp_status trainer_check_memory(gp_trainer *trainer, const gp_plan_options *options,
                                      const gp_plan_memory *memory, gp_error *err)
{
    enum { NEED, FIXED, EACH, MISSING, NUMBERS };
    const double gib = 1024.0 * 1024.0 * 1024.0;
    uint64_t free_bytes = gp_memory_available() / trainer->world;
    double available = free_bytes > INT64_MAX ? 9e18 : (double)free_bytes;
    double bound = gp_memory_bound(trainer->graph, GP_PHASE_TRAIN, trainer->micro_batch);
    int64_t numbers[NUMBERS] = { 0 };
    char parts[100] = "";
    gp_status status;

    numbers[MISSING] = -(int64_t)available;
    if (strcmp(trainer->backend_ops->name, "cpu") == 0 && bound > available / 2) {
        gp_memory_model model =
            gp_memory_measure(trainer->backend_ops, trainer->backend, trainer->graph, options, memory);

        numbers[FIXED] = (int64_t)model.fixed;
        numbers[EACH] = (int64_t)model.each;
        numbers[NEED] = (int64_t)(model.fixed + model.each * trainer->micro_batch);
    }
    status = gp_comm_all_reduce_private(trainer->comm, numbers, NUMBERS, GP_I64, GP_COMM_MAX, err);
    if (status != GP_OK || numbers[NEED] <= -numbers[MISSING])
        return status;
    int64_t fits = numbers[EACH] == 0 ? 0 : (-numbers[MISSING] - numbers[FIXED]) / numbers[EACH];

    fits = fits < 0 ? 0 : fits;
    if (!trainer->graph->couples_samples && fits > 0)
        snprintf(parts, sizeof(parts), ", or micro-batch-size %" PRId64 ", which computes it in parts", fits);
    return gp_fail(err, GP_ENOMEM,
                   "a share of %" PRIu32
                   " samples of network %s needs about %.1f GiB of memory and each of %" PRIu32
                   " workers has %.1f GiB; use a mini-batch-size of at most %" PRId64 "%s",
                   trainer->micro_batch, trainer->spec->name, (double)numbers[NEED] / gib, trainer->world,
                   -(double)numbers[MISSING] / gib, fits * trainer->world, parts);
}

/* check: collective. */
static gp_status compile_plans(gp_trainer *trainer, bool check, gp_error *err)
{
    gp_plan_memory memory = { .parameters = trainer->parameters,
                              .gradients = trainer->gradients,
                              .sums = trainer->header,
                              .factors = trainer->factors,
                              .factor_count = trainer->factor_count };
    gp_plan_options options = { .phase = GP_PHASE_TRAIN,
                                .micro_batch = trainer->micro_batch,
                                .sample_dtype = gp_store_get_info(trainer->data)->dtype,
                                .threads = trainer->options.reproducible ? 1 : 0,
                                .precision = (gp_precision)trainer->options.precision };
    gp_status status = check ? trainer_check_memory(trainer, &options, &memory, err) : GP_OK;
    const int64_t began_ns = gp_now_ns();

    if (status == GP_OK && check)
        status = gp_trainer_tune(trainer, err);
    options.tuning = trainer->tuning.choices == NULL ? NULL : &trainer->tuning;
    if (status == GP_OK)
        status = trainer->backend_ops->compile(&trainer->plan, trainer->backend, trainer->graph, &options,
                                               &memory, err);
    if (status == GP_OK)
        gp_log(GP_LOG_DEBUG, "plan-compiled", "a plan of %" PRIu32 " samples after %.2f ms",
               options.micro_batch, (double)(gp_now_ns() - began_ns) * 1e-6);
    if (status != GP_OK || trainer->validation == NULL)
        return status;
    options.phase = GP_PHASE_INFER;
    options.sample_dtype = gp_store_get_info(trainer->validation)->dtype;
    memory.gradients = NULL;
    return trainer->backend_ops->compile(&trainer->validation_plan, trainer->backend, trainer->graph,
                                         &options, &memory, err);
}

gp_status gp_trainer_compile(gp_trainer *trainer, gp_error *err)
{
    gp_status status = compile_plans(trainer, true, err);

    return status == GP_OK ? gp_trainer_tuned(trainer, err) : status;
}

gp_status gp_trainer_rehearse(gp_trainer *trainer, gp_error *err)
{
    gp_status status = take_own_sums(trainer, err);

    return status == GP_OK ? compile_plans(trainer, false, err) : status;
}
