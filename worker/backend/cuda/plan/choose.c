/* Selects the way in which a library executes an op: whole (with all operations after the op) or
 * alone, and the engine. For some convolutions a kernel of this backend is a further way: direct.
 *
 *   list       lower the op once without the library, to list the op's ways
 *   recorded   if the tuning has a choice, use it
 *   measured   otherwise, if there are several ways and time is left: lower the op in each way,
 *              execute and measure the steps in their final place, and undo the lowering
 *   default    otherwise use the direct kernel if there is one; then `whole` if a plan exists, and
 *              the first engine in the library's order
 *
 * A measurement covers all steps for an op. It compares, for example, a convolution with bias
 * against one without bias followed by the kernel that adds it. Ways that fail are skipped. The way
 * used is recorded in the tuning. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "worker/backend/cuda/plan/lower_inside.h"

/* RECORDED: runs in the measured graph. If a run takes longer than SLOW_NS, a single run is
 * measured instead. */
enum { LISTED_MAX = 48, RECORDED = 8, REPLAYS = 3, SLOW_NS = 500000 };

static const char whole_word[] = "whole ", alone_word[] = "alone ", direct_way[] = "direct";

/* ---- library requests ---- */

static gp_choice *choice_find(const gp_tuning *tuning, const char *what)
{
    for (uint32_t i = 0; tuning != NULL && i < tuning->count; i++)
        if (strcmp(tuning->choices[i].what, what) == 0)
            return &tuning->choices[i];
    return NULL;
}

/* Sort by engine. Engines, and the configurations of each, keep the library's order. */
static void engines_group(gp_engine *engines, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const gp_engine engine = engines[i];
        uint32_t at = i;

        while (at > 0 && engines[at - 1].number != engine.number)
            at--;
        if (at == 0) /* the first configuration of its engine */
            continue;
        memmove(&engines[at + 1], &engines[at], (i - at) * sizeof(*engines));
        engines[at] = engine;
    }
}

/* List the configurations to measure, engine by engine. The number is limited for each engine and
 * in total; the total is lower for configurations that must be compiled. */
static void ways_list(const lowering *l, step_kind kind, const void *request, const char *word)
{
    gp_device *device = l->plan->backend->device;
    plan_site *site = l->site;
    gp_engine engines[LISTED_MAX];
    uint32_t left[2] = { PLAN_QUICK_MAX, PLAN_COMPILED_MAX }, of_engine = 0;
    uint32_t count = kind == STEP_CONV ? gp_device_conv_engines(device, request, engines, LISTED_MAX)
                                       : gp_device_product_engines(device, request, engines, LISTED_MAX);

    engines_group(engines, count);
    for (uint32_t i = 0; i < count && site->way_count < PLAN_WAYS_MAX; i++) {
        plan_way *way = &site->ways[site->way_count];

        of_engine = i > 0 && engines[i].number == engines[i - 1].number ? of_engine + 1 : 1;
        if (of_engine > PLAN_ENGINE_MAX || left[engines[i].compiled] == 0)
            continue;
        left[engines[i].compiled]--;
        way->compiled = engines[i].compiled;
        snprintf(way->how, sizeof(way->how), "%.6s%.31s", word, engines[i].name);
        site->way_count++;
    }
}

/* Return a plan for the request. NULL: the library has none, which is no error, or l->status is an
 * error. */
static gp_device_work *library_ask(lowering *l, step_kind kind, const void *request, const char *engine,
                                   size_t *workspace)
{
    gp_device *device = l->plan->backend->device;
    gp_device_work *work = NULL;
    gp_error why;
    gp_status status;

    if (l->status != GP_OK)
        return NULL;
    status = kind == STEP_CONV ? gp_device_conv_new(&work, device, request, engine, workspace, &why)
                               : gp_device_product_new(&work, device, request, engine, workspace, &why);
    if (status == GP_OK)
        return work;
    snprintf(l->site->missing, sizeof(l->site->missing), "%.199s", why.message);
    if (status != GP_EUNSUPPORTED)
        l->status = gp_fail(l->err, status, "%s", why.message);
    return NULL;
}

static gp_device_work *plan_ask(lowering *l, const plan_question *question, const char *what,
                                size_t *workspace)
{
    const void *whole = question->whole;
    plan_site *site = l->site;
    const gp_choice *choice = choice_find(l->plan->options.tuning, what);
    gp_device_work *work = NULL;

    snprintf(site->what, sizeof(site->what), "%s", what);
    if (site->listing) {
        if (choice == NULL && question->direct)
            strcpy(site->ways[site->way_count++].how, direct_way);
        if (choice == NULL && whole != NULL)
            ways_list(l, question->kind, whole, whole_word);
        if (choice == NULL)
            ways_list(l, question->kind, question->alone, alone_word);
        return NULL;
    }
    if (site->how == NULL && choice != NULL)
        site->how = choice->how;
    site->direct = question->direct && (site->how == NULL || strcmp(site->how, direct_way) == 0);
    if (site->direct)
        return NULL;
    if (site->how != NULL) {
        site->whole = strncmp(site->how, whole_word, strlen(whole_word)) == 0;
        if (whole != NULL || !site->whole)
            work = library_ask(l, question->kind, site->whole ? whole : question->alone,
                               site->how + strlen(whole_word), workspace);
        if (l->status != GP_OK || work != NULL)
            return work;
        site->refused = true;
    }
    if (whole != NULL && !question->alone_by_rule)
        work = library_ask(l, question->kind, whole, NULL, workspace);
    site->whole = work != NULL;
    return work != NULL ? work : library_ask(l, question->kind, question->alone, NULL, workspace);
}

gp_device_work *gp_lower_ask(lowering *l, const plan_question *question, const char *what, size_t *workspace)
{
    gp_device_work *work = plan_ask(l, question, what, workspace);

    if (work != NULL) /* a plan for another part of the request */
        l->site->missing[0] = '\0';
    return work;
}

/* ---- lowering that can be undone ---- */

typedef struct marks {
    uint32_t index, steps, prepare, copies;
    size_t bytes[REGIONS]; /* reserved bytes */
} marks;

static void plan_take_back(gp_plan *plan, const marks *m)
{
    uint32_t written = plan->ops[m->index].out[0];

    gp_step_cut(&plan->steps, m->steps);
    gp_step_cut(&plan->prepare, m->prepare);
    plan->copy_count = m->copies;
    for (int i = 0; i < REGIONS; i++)
        plan->regions[i].bytes = m->bytes[i];
    if (written != GP_NO_VALUE)
        plan->values[written].product_mask = NULL;
}

/* Lower an op. how NULL: as the tuning says, or the default. */
static gp_status lower_as(gp_plan *plan, uint32_t index, const char *how, plan_site *site, gp_error *err)
{
    *site = (plan_site){ .how = how };
    return gp_lower_op(plan, index, site, err);
}

/* ---- measurements ---- */

typedef struct race {
    gp_plan *plan;
    bool timing; /* the time budget allows measurements */
    bool began;
    plan_region room[REGIONS]; /* allocated memory, at least as large as any way needed so far */
    int64_t compiled_left_ns;  /* engines that must be compiled get at most half the time */
} race;

/* Fill memory with nonzero data, because some devices multiply zeros faster. As 2-byte or 4-byte
 * values of any type, the data is small and finite. */
static gp_status numbers_fill(gp_device *device, void *to, size_t bytes, gp_error *err)
{
    uint16_t numbers[1024];
    uint32_t bits = 7;
    gp_status status;

    for (size_t i = 0; i < 1024; i++) {
        bits = bits * 1664525u + 1013904223u;
        numbers[i] = (uint16_t)((bits >> 16 & 0x83ffu) | 0x3c00u);
    }
    status = gp_device_upload(device, to, numbers, bytes < sizeof(numbers) ? bytes : sizeof(numbers), err);
    for (size_t done = sizeof(numbers); done < bytes && status == GP_OK; done *= 2)
        status =
            gp_device_copy(device, (char *)to + done, to, bytes - done < done ? bytes - done : done, err);
    return status;
}

/* End the measurements and clear the memory that they wrote to. */
static gp_status race_end(race *r, gp_status status, gp_error *err)
{
    gp_plan *plan = r->plan;
    const plan_buffers *buffers = &plan->buffers;
    gp_device *device = plan->backend->device;

    for (int i = 0; i < REGIONS; i++) {
        gp_device_free(device, r->room[i].at);
        plan->regions[i].at = NULL;
    }
    if (!r->began || status != GP_OK)
        return status;
    status = gp_device_clear(device, plan->arena.at, plan->arena.bytes, err);
    if (status == GP_OK && buffers->gradients != NULL)
        status = gp_device_clear(device, buffers->gradients, plan->graph->blob_count * sizeof(float), err);
    if (status == GP_OK)
        status = gp_buffers_clear_sums(buffers, device, err);
    return status == GP_OK ? gp_device_clear(device, buffers->call, sizeof(*buffers->call), err) : status;
}

static gp_status steps_run(gp_plan *plan, const marks *m, int times, gp_error *err)
{
    gp_status status = GP_OK;

    for (int k = 0; k < times && status == GP_OK; k++)
        status = gp_plan_launch(plan, &plan->steps, m->steps, plan->steps.count - m->steps, err);
    return status;
}

/* Measure one run. graph NULL: launch the steps once. */
static gp_status time_once(gp_plan *plan, const marks *m, gp_device_graph *graph, int64_t *ns, gp_error *err)
{
    gp_device *device = plan->backend->device;
    gp_status status = gp_device_mark(device, 0, err);

    if (status == GP_OK)
        status = graph == NULL ? steps_run(plan, m, 1, err) : gp_device_replay(device, graph, err);
    if (status == GP_OK)
        status = gp_device_mark(device, 1, err);
    if (status == GP_OK)
        status = gp_device_sync(device, err);
    if (status == GP_OK)
        *ns = gp_device_between_ns(device, 0, 1);
    return status;
}

/* Measure a way's steps in a graph, as in normal use. The first run loads kernels. A way that is
 * much slower than the best is measured only once. */
static gp_status steps_time(race *r, const marks *m, double best_ns, double *out, gp_error *err)
{
    gp_plan *plan = r->plan;
    gp_device *device = plan->backend->device;
    gp_device_graph *graph = NULL;
    int64_t ns = 0;
    int times = 1;
    gp_status status = steps_run(plan, m, 1, err);

    if (status == GP_OK)
        status = time_once(plan, m, NULL, &ns, err);
    if (status == GP_OK && !plan->backend->eager) {
        times = ns > SLOW_NS ? 1 : RECORDED;
        status = gp_device_record(device, err);
        if (status == GP_OK)
            status = gp_plan_recorded(plan, &graph, steps_run(plan, m, times, err), err);
    }
    *out = 0.0;
    for (int k = 0; k < REPLAYS && status == GP_OK && !(*out > 2 * best_ns && best_ns > 0); k++) {
        status = time_once(plan, m, graph, &ns, err);
        if (status == GP_OK && (k == 0 || (double)ns / times < *out))
            *out = (double)ns / times;
    }
    gp_device_graph_free(graph);
    return status;
}

/* Measure one way. *ns 0: it failed, or there is no memory for it. */
static gp_status way_time(race *r, const marks *m, const plan_way *way, double best_ns, double *ns,
                          gp_error *err)
{
    gp_plan *plan = r->plan;
    plan_site site;
    gp_error why;
    gp_status status = lower_as(plan, m->index, way->how, &site, err);

    *ns = 0.0;
    if (status == GP_OK && !site.refused) {
        /* Allocate memory for the current way, which may not fit. */
        gp_device *device = r->plan->backend->device;

        for (int i = 0; i < REGIONS && status == GP_OK; i++) {
            plan_region *room = &r->room[i], *region = &r->plan->regions[i];

            if (room->bytes < region->bytes) {
                void *block = NULL;

                gp_device_free(device, room->at);
                *room = (plan_region){ .at = NULL };
                status = gp_device_alloc(device, &block, region->bytes, &why);
                room->at = block;
                if (status == GP_OK)
                    status = numbers_fill(device, room->at, region->bytes, &why);
                if (status == GP_OK)
                    room->bytes = region->bytes;
            }
            region->at = room->at;
        }
        if (status == GP_OK) {
            gp_step_move(&plan->steps, m->steps, plan->regions);
            status = steps_time(r, m, best_ns, ns, &why);
        }
        if (status != GP_OK) { /* a failure of this way is ignored, but a lost device is an error */
            *ns = 0.0;
            status = gp_device_sync(plan->backend->device, err);
        }
    }
    plan_take_back(plan, m);
    return status;
}

/* Measure all ways. *winner NULL: no way was measured. */
static gp_status race_run(race *r, const marks *m, const plan_site *listed, const plan_way **winner,
                          double *best_ns, gp_error *err)
{
    gp_plan *plan = r->plan;
    gp_tuning *tuning = plan->options.tuning;
    const gp_kernel_call call =
        gp_plan_call(&(gp_batch){ .count = plan->options.micro_batch, .first = true, .last = true });
    gp_status status = GP_OK;

    if (!r->began) {
        r->began = true;
        status = gp_device_upload(plan->backend->device, plan->buffers.call, &call, sizeof(call), err);
        if (status == GP_OK)
            status = numbers_fill(plan->backend->device, plan->arena.at, plan->arena.bytes, err);
    }
    *winner = NULL;
    *best_ns = 0.0;
    for (int compiled = 0; compiled < 2; compiled++) /* ways without compilation first */
        for (uint32_t i = 0; i < listed->way_count && status == GP_OK; i++) {
            const plan_way *way = &listed->ways[i];
            int64_t begin_ns = gp_now_ns(), spent_ns;
            double ns;

            if (way->compiled != (compiled == 1) || tuning->left_ns <= 0 ||
                (tuning->stop != NULL && atomic_load(tuning->stop) != 0) ||
                (way->compiled && r->compiled_left_ns <= 0))
                continue;
            status = way_time(r, m, way, *best_ns, &ns, err);
            spent_ns = gp_now_ns() - begin_ns;
            tuning->left_ns -= spent_ns;
            r->compiled_left_ns -= way->compiled ? spent_ns : 0;
            if (status == GP_OK && ns > 0 && (*winner == NULL || ns < *best_ns)) {
                *winner = way;
                *best_ns = ns;
            }
        }
    return status;
}

/* ---- lower all ops ---- */

/* Record the way used, however it was selected. */
static void choice_note(gp_plan *plan, const marks *m, const plan_site *site, double us)
{
    gp_tuning *tuning = plan->options.tuning;
    gp_choice *choice = choice_find(tuning, site->what);
    const step *s = NULL;

    for (uint32_t i = m->steps; i < plan->steps.count; i++)
        if (plan->steps.step[i].work != NULL)
            s = &plan->steps.step[i];
    if ((s == NULL && !site->direct) || (choice == NULL && tuning->count == GP_CHOICES_MAX))
        return;
    if (choice == NULL)
        choice = &tuning->choices[tuning->count++];
    else if (!site->refused) {
        choice->used = true;
        return;
    } else
        tuning->unknown++;
    snprintf(choice->what, sizeof(choice->what), "%s", site->what);
    if (site->direct)
        snprintf(choice->how, sizeof(choice->how), "%s", direct_way);
    else
        snprintf(choice->how, sizeof(choice->how), "%s%.31s", site->whole ? whole_word : alone_word,
                 gp_device_work_engine(s->work));
    choice->us = us;
    choice->used = true;
}

/* Record that no library executes an op, with the first error. */
static void missing_note(plan_missing *missing, const plan_site *site)
{
    if (site->missing[0] != '\0' && missing->count++ == 0)
        snprintf(missing->why, sizeof(missing->why), "%s", site->missing);
}

static gp_status lower_chosen(race *r, uint32_t index, gp_error *err)
{
    gp_plan *plan = r->plan;
    gp_tuning *tuning = plan->options.tuning;
    marks m = {
        .index = index, .steps = plan->steps.count, .prepare = plan->prepare.count, .copies = plan->copy_count
    };
    const plan_way *winner = NULL;
    plan_site listed = { .listing = true }, site;
    double ns = 0.0;
    gp_status status = GP_OK;

    if (tuning == NULL || !gp_plan_asks(plan->ops[index].code)) {
        status = lower_as(plan, index, NULL, &site, err);
        missing_note(&plan->missing, &site);
        return status;
    }
    for (int i = 0; i < REGIONS; i++)
        m.bytes[i] = plan->regions[i].bytes;
    if (r->timing) { /* list the ways of an op without a recorded choice */
        gp_lower_op(plan, index, &listed, NULL);
        plan_take_back(plan, &m);
    }
    if (listed.way_count > 1 && tuning->count < GP_CHOICES_MAX)
        status = race_run(r, &m, &listed, &winner, &ns, err);
    if (status == GP_OK)
        status = lower_as(plan, index, winner == NULL ? NULL : winner->how, &site, err);
    if (status == GP_OK)
        missing_note(&plan->missing, &site);
    if (status != GP_OK || site.what[0] == '\0')
        return status;
    tuning->timed += winner != NULL;
    tuning->untimed += winner == NULL && listed.way_count > 1;
    choice_note(plan, &m, &site, ns * 1e-3);
    return GP_OK;
}

gp_status gp_plan_lower_all(gp_plan *plan, gp_error *err)
{
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    race r = { .plan = plan };
    gp_status status = GP_OK;

    if (plan->options.tuning != NULL && plan->options.tuning->left_ns > 0) {
        r.timing = true;
        r.compiled_left_ns = plan->options.tuning->left_ns / 2;
    }
    for (uint32_t i = 0; i < ops->count && status == GP_OK; i++)
        status = lower_chosen(&r, i, err);
    return race_end(&r, status, err);
}
