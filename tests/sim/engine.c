/* Scripts, shrinking and the event queue. engine.h describes the interface. */
#include "tests/sim/engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- scripts ---- */

static const struct {
    const char *word;
    uint32_t weight;
} kinds[SIM_FAULT_KINDS] = {
#define SIM_FAULT(name, word, weight, text) { word, weight },
#include "tests/sim/faults.def"
#undef SIM_FAULT
};

enum { ACTOR_SCRIPT = 1 };

static sim_fault_kind draw_kind(sim_dice *dice)
{
    uint32_t all = 0, hit, kind = 0;

    for (uint32_t i = 0; i < SIM_FAULT_KINDS; i++)
        all += kinds[i].weight;
    hit = sim_draw(dice, all);
    while (hit >= kinds[kind].weight)
        hit -= kinds[kind++].weight;
    return (sim_fault_kind)kind;
}

static sim_fault draw_fault(sim_dice *dice, int64_t at_ms)
{
    sim_fault fault = { .at_ms = at_ms, .kind = draw_kind(dice), .target = sim_draw(dice, 8) };

    switch (fault.kind) {
    case SIM_FUSE_WORKER:
    case SIM_FUSE_CLIENT:
    case SIM_DUPLICATE:
        fault.amount = 1 + sim_draw(dice, 12);
        break;
    case SIM_FUSE_SCHEDULER:
        fault.target = 1 + sim_draw(dice, 12);
        fault.amount = sim_draw(dice, sim_chance(dice, 20) ? 2500 : 150);
        break;
    case SIM_STOP_WORKER:
    case SIM_STOP_CLIENT:
    case SIM_STOP_SUBMITTER:
    case SIM_STOP_SCHEDULER:
    case SIM_CUT_WORKER:
    case SIM_CUT_CLIENT:
        fault.amount = sim_draw(dice, sim_chance(dice, 20) ? 20000 : 1500);
        if (fault.kind == SIM_STOP_WORKER && sim_chance(dice, 20))
            fault.amount = 1000000; /* hangs forever */
        break;
    case SIM_SLOW_NETWORK:
    case SIM_SLOW_DISK:
        fault.target = sim_draw(dice, 300);
        fault.amount = sim_draw(dice, 2000);
        break;
    case SIM_FAIL_DISK:
        fault.amount = sim_draw(dice, 101);
        break;
    case SIM_JUMP_CLOCK:
        fault.target = sim_draw(dice, 2);
        fault.amount = 1 + sim_draw(dice, 1000);
        break;
    case SIM_KILL_SCHEDULER:
    case SIM_KILL_MACHINE:
    case SIM_TAKE_DOWN:
        fault.target = 0;
        fault.amount = sim_draw(dice, sim_chance(dice, 20) ? 2500 : 150);
        break;
    default:
        break;
    }
    return fault;
}

/* Draw a script in which only schedulers fail, each after a few actions. */
static void draw_scheduler_failures(sim_script *out, sim_dice *dice)
{
    out->slots = 2 + sim_draw(dice, 5);
    out->clients = 2 + sim_draw(dice, 7);
    out->submitters = 0;
    for (int64_t at_ms = 500; at_ms < out->calm_ms; at_ms += 200 + sim_draw(dice, 1800))
        out->faults[out->count++] = (sim_fault){ .at_ms = at_ms,
                                                 .kind = SIM_FUSE_SCHEDULER,
                                                 .target = 1 + sim_draw(dice, 60),
                                                 .amount = sim_draw(dice, 150) };
}

void sim_script_draw(sim_script *out, uint64_t seed, uint32_t rate)
{
    sim_dice dice = sim_dice_of(seed, ACTOR_SCRIPT, 0);
    int64_t at_ms = 0;

    /* the rate varies from rare faults, between which work completes, to many at once */
    if (rate > 0)
        rate = sim_chance(&dice, 50) ? 1 + sim_draw(&dice, 1 + rate / 3)
                                     : 1 + rate / 2 + sim_draw(&dice, 3 * rate);
    *out = (sim_script){ .seed = seed,
                         .slots = 1 + sim_draw(&dice, 6),
                         .clients = 1 + sim_draw(&dice, 8),
                         .submitters = sim_draw(&dice, 4),
                         .calm_ms = 10000 };
    if (rate > 0 && (seed % 12 == 1 || seed % 12 == 5)) {
        draw_scheduler_failures(out, &dice);
        return;
    }
    while (out->count < SIM_FAULTS_MAX) { /* faults come in bursts */
        uint32_t usual = 2000 / (rate == 0 ? 1 : rate);

        at_ms += sim_chance(&dice, 40) ? sim_draw(&dice, 1 + usual / 8) : sim_draw(&dice, 1 + 3 * usual / 2);
        if (rate == 0 || at_ms >= out->calm_ms)
            break;
        out->faults[out->count++] = draw_fault(&dice, at_ms);
    }
}

void sim_script_print(const sim_script *script, char text[SIM_SCRIPT_BYTES])
{
    size_t used = (size_t)snprintf(
        text, SIM_SCRIPT_BYTES, "seed %" PRIu64 " slots %u clients %u submitters %u calm %" PRId64 ":",
        script->seed, script->slots, script->clients, script->submitters, script->calm_ms);

    for (uint32_t i = 0; i < script->count; i++) {
        const sim_fault *fault = &script->faults[i];

        used += (size_t)snprintf(text + used, SIM_SCRIPT_BYTES - used, "%s %" PRId64 " %s %u %u",
                                 i == 0 ? "" : ",", fault->at_ms, kinds[fault->kind].word, fault->target,
                                 fault->amount);
    }
}

bool sim_script_parse(sim_script *out, const char *text, char why[120])
{
    int used = 0;

    *out = (sim_script){ 0 };
    if (sscanf(text, "seed %" SCNu64 " slots %u clients %u submitters %u calm %" SCNd64 ":%n", &out->seed,
               &out->slots, &out->clients, &out->submitters, &out->calm_ms, &used) != 5 ||
        used == 0) {
        snprintf(why, 120, "a script begins with 'seed S slots N clients N submitters N calm MS:'");
        return false;
    }
    for (text += used; *text != '\0';) {
        sim_fault *fault = &out->faults[out->count];
        char word[32];
        uint32_t kind = 0;

        used = 0;
        if (out->count == SIM_FAULTS_MAX || sscanf(text, " %" SCNd64 " %31s %u %u%n", &fault->at_ms, word,
                                                   &fault->target, &fault->amount, &used) != 4) {
            snprintf(why, 120, "no 'MS FAULT TARGET AMOUNT' at '%.60s'", text);
            return false;
        }
        while (kind < SIM_FAULT_KINDS && strcmp(kinds[kind].word, word) != 0)
            kind++;
        if (kind == SIM_FAULT_KINDS) {
            snprintf(why, 120, "there is no fault '%s'", word);
            return false;
        }
        fault->kind = (sim_fault_kind)kind;
        out->count++;
        text += used;
        text += *text == ',';
    }
    return true;
}

/* ---- shrinking ---- */

enum { SHRINK_SEEDS = 16 };

typedef struct shrinking {
    sim_script best, tried;
    sim_outcome outcome;
    sim_run_fn run;
    void *context;
    uint32_t runs;
    uint32_t seeds; /* seeds to try per smaller script */
} shrinking;

/* Run the candidate script; keep it if the same check fails.
 *
 * Removing a fault also shifts all later random numbers of its actors. A fault can therefore look
 * necessary only because of those numbers, so other seeds are tried as well. They differ by even
 * numbers, because the parity of a seed selects the kind of run (world.c). */
static bool still_fails(shrinking *s)
{
    for (uint32_t i = 0; i < s->seeds; i++) {
        sim_outcome outcome;

        s->runs++;
        s->tried.seed = s->best.seed + 2 * (uint64_t)i;
        s->run(s->context, &s->tried, &outcome);
        if (!outcome.kept && strcmp(outcome.check, s->outcome.check) == 0) {
            s->outcome = outcome;
            s->best = s->tried;
            return true;
        }
    }
    return false;
}

static void without(shrinking *s, uint32_t from, uint32_t count)
{
    s->tried = s->best;
    memmove(&s->tried.faults[from], &s->tried.faults[from + count],
            (s->best.count - from - count) * sizeof(s->tried.faults[0]));
    s->tried.count -= count;
}

/* Remove faults in ever smaller pieces, until no single fault can be removed. */
static bool shrink_faults(shrinking *s)
{
    uint32_t before = s->best.count;

    for (uint32_t piece = s->best.count; piece > 0; piece = piece == 1 ? 0 : (piece + 1) / 2) {
        bool again = true;

        while (again) {
            again = false;
            for (uint32_t from = 0; from < s->best.count;) {
                uint32_t count = from + piece > s->best.count ? s->best.count - from : piece;

                without(s, from, count);
                if (still_fails(s))
                    again = piece == 1;
                else
                    from += count;
            }
        }
    }
    return s->best.count != before;
}

static bool shrink_number(shrinking *s, uint32_t *best, uint32_t *tried, uint32_t least)
{
    uint32_t before = *best;

    for (bool again = true; again && *best > least;) {
        again = false;
        for (uint32_t to = least; to < *best && !again; to++) {
            s->tried = s->best;
            *tried = to;
            again = still_fails(s);
        }
    }
    return *best != before;
}

uint32_t sim_shrink(sim_script *script, sim_outcome *outcome, sim_run_fn run, void *context)
{
    shrinking *s = calloc(1, sizeof(*s));
    uint32_t runs;

    if (s == NULL)
        return 0;
    s->best = *script;
    s->outcome = *outcome;
    s->run = run;
    s->context = context;
    s->seeds = 1;
    s->tried = s->best; /* drop all faults after the failure */
    if (s->outcome.at_ms + 1 < s->best.calm_ms) {
        s->tried.calm_ms = s->outcome.at_ms + 1;
        while (s->tried.count > 0 && s->tried.faults[s->tried.count - 1].at_ms > s->outcome.at_ms)
            s->tried.count--;
        still_fails(s);
    }
    for (s->seeds = 1; s->seeds <= SHRINK_SEEDS; s->seeds += SHRINK_SEEDS - 1)
        for (bool smaller = true; smaller;) {
            smaller = shrink_faults(s);
            smaller |= shrink_number(s, &s->best.submitters, &s->tried.submitters, 0);
            smaller |= shrink_number(s, &s->best.clients, &s->tried.clients, 0);
            smaller |= shrink_number(s, &s->best.slots, &s->tried.slots, 1);
        }
    *script = s->best;
    *outcome = s->outcome;
    runs = s->runs;
    free(s);
    return runs;
}

/* ---- queue: a binary heap of pool entries ---- */

typedef struct place {
    int64_t at_us;
    uint64_t order;
    uint32_t index;
} place;

struct sim_queue {
    size_t bytes;
    uint32_t room, count, free_count, popped;
    uint64_t order;
    place *heap;
    uint32_t *free;
    unsigned char *pool;
};

sim_queue *sim_queue_new(size_t happening_bytes, uint32_t room)
{
    sim_queue *queue = calloc(1, sizeof(*queue));

    if (queue == NULL)
        return NULL;
    queue->bytes = (happening_bytes + 63) / 64 * 64;
    queue->room = room;
    queue->heap = malloc(room * sizeof(*queue->heap));
    queue->free = malloc(room * sizeof(*queue->free));
    queue->pool = aligned_alloc(64, room * queue->bytes);
    if (queue->heap == NULL || queue->free == NULL || queue->pool == NULL) {
        sim_queue_free(queue);
        return NULL;
    }
    sim_queue_clear(queue);
    return queue;
}

void sim_queue_free(sim_queue *queue)
{
    if (queue == NULL)
        return;
    free(queue->heap);
    free(queue->free);
    free(queue->pool);
    free(queue);
}

void sim_queue_clear(sim_queue *queue)
{
    queue->count = 0;
    queue->order = 0;
    queue->free_count = queue->room;
    for (uint32_t i = 0; i < queue->room; i++)
        queue->free[i] = queue->room - 1 - i; /* the same entries in every run */
}

static bool before(const place *a, const place *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void enter(sim_queue *queue, int64_t at_us, uint32_t index)
{
    place it = { .at_us = at_us, .order = queue->order++, .index = index };
    uint32_t i = queue->count++;

    for (; i > 0 && before(&it, &queue->heap[(i - 1) / 2]); i = (i - 1) / 2)
        queue->heap[i] = queue->heap[(i - 1) / 2];
    queue->heap[i] = it;
}

void *sim_queue_push(sim_queue *queue, int64_t at_us)
{
    uint32_t index;

    if (queue->free_count == 0)
        return NULL;
    index = queue->free[--queue->free_count];
    enter(queue, at_us, index);
    return queue->pool + index * queue->bytes;
}

int64_t sim_queue_at(const sim_queue *queue)
{
    return queue->count == 0 ? INT64_MAX : queue->heap[0].at_us;
}

void *sim_queue_pop(sim_queue *queue)
{
    place last = queue->heap[--queue->count];
    uint32_t i = 0;

    queue->popped = queue->heap[0].index;
    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= queue->count)
            break;
        if (child + 1 < queue->count && before(&queue->heap[child + 1], &queue->heap[child]))
            child++;
        if (!before(&queue->heap[child], &last))
            break;
        queue->heap[i] = queue->heap[child];
        i = child;
    }
    if (queue->count > 0)
        queue->heap[i] = last;
    return queue->pool + queue->popped * queue->bytes;
}

void sim_queue_drop(sim_queue *queue)
{
    queue->free[queue->free_count++] = queue->popped;
}

void sim_queue_again(sim_queue *queue, int64_t at_us)
{
    enter(queue, at_us, queue->popped);
}
