/* Run millions of simulated faults. See `tests/sim/run --help`. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/cluster.h"

enum { PROCESSES_MAX = 256 };

typedef struct plan {
    uint64_t first, seeds;
    double seconds;
    uint32_t rate, processes;
    const char *script;
    sim_bug bug;
    bool trace;
} plan;

typedef struct sums {
    sim_tally tally;
    uint64_t seeds;
    double cpu_seconds;
    bool failed;
} sums;

static const char help[] =
    "usage: tests/sim/run [options]\n"
    "\n"
    "Simulate a pool under faults, seed by seed, and check all invariants after every event:\n"
    "scheduler, supervision, adoption, background jobs and their journal, clients and calls.\n"
    "A failing seed is shrunk and printed as a line for tests/sim/found.def.\n"
    "\n"
    "  --seeds N       number of runs [1000; with --minutes: no limit]\n"
    "  --minutes M     run for M minutes; may be a fraction\n"
    "  --first S       first seed [1]\n"
    "  --rate R        mean faults per simulated second [25]\n"
    "  --processes P   parallel processes with different seeds [1]\n"
    "  --script TEXT   run this script only\n"
    "  --trace         print every event of a run\n"
    "  --plant BUG     plant a bug; 'list' prints the names\n"
    "\n"
    "examples:\n"
    "  tests/sim/run --minutes 1                       about twenty million faults\n"
    "  tests/sim/run --first 4711 --seeds 1 --trace    one run, event by event\n"
    "  tests/sim/run --plant amnesia                   a run with a planted bug\n"
    "\n"
    "exit codes: 0 all checks passed, 1 a check failed, 2 usage error\n";

static double seconds_of(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void add(sim_tally *to, const sim_tally *from)
{
    uint64_t *sum = (uint64_t *)(void *)to;
    const uint64_t *more = (const uint64_t *)(const void *)from;

    for (size_t i = 0; i < sizeof(*to) / sizeof(*sum); i++)
        sum[i] += more[i];
}

static void print_failure(sim *s, sim_script *script, sim_outcome *outcome)
{
    static char text[SIM_SCRIPT_BYTES];
    uint32_t before = script->count, runs;

    printf("seed %" PRIu64 ": %s at %" PRId64 " ms: %s\n", script->seed, outcome->check, outcome->at_ms,
           outcome->why);
    runs = sim_shrink(script, outcome, sim_run, s);
    sim_script_print(script, text);
    printf("shrunk from %u faults to %u in %u runs: %s\nSIM_FOUND(\"%s\",\n          \"%s\")\n", before,
           script->count, runs, outcome->why, outcome->why, text);
    fflush(stdout);
}

static void run_seeds(const plan *p, uint32_t number, sums *out)
{
    double until = p->seconds > 0 ? seconds_of(CLOCK_MONOTONIC) + p->seconds : 1e300;
    double begin = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    sim *s = sim_new();
    sim_script script;
    sim_outcome outcome;

    if (s == NULL) {
        fprintf(stderr, "no memory\n");
        out->failed = true;
        return;
    }
    s->out = p->trace ? stdout : NULL;
    for (uint64_t seed = p->first + number;
         seed - p->first < p->seeds && seconds_of(CLOCK_MONOTONIC) < until && !out->failed;
         seed += p->processes) {
        sim_script_draw(&script, seed, p->rate);
        sim_run(s, &script, &outcome);
        add(&out->tally, &s->tally);
        out->seeds++;
        out->cpu_seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - begin;
        out->failed = !outcome.kept;
        s->out = NULL;
        if (!outcome.kept)
            print_failure(s, &script, &outcome);
    }
    sim_free(s);
}

static int run_script(const plan *p)
{
    sim *s = sim_new();
    sim_script script;
    sim_outcome outcome;
    char why[120];

    if (s == NULL || !sim_script_parse(&script, p->script, why)) {
        fprintf(stderr, "tests/sim/run: %s\n", s == NULL ? "no memory" : why);
        sim_free(s);
        return 2;
    }
    s->out = p->trace ? stdout : NULL;
    sim_run(s, &script, &outcome);
    printf("%s%s%s, after %" PRId64 " ms and %" PRIu64 " events, trace %016" PRIx64 "\n", outcome.check,
           outcome.kept ? "all checks passed" : ": ", outcome.why, outcome.at_ms, outcome.events,
           outcome.trace);
    sim_free(s);
    return outcome.kept ? 0 : 1;
}

static int tell(const plan *p, const sums *each)
{
    sums all = { .failed = false };

    for (uint32_t i = 0; i < p->processes; i++) {
        add(&all.tally, &each[i].tally);
        all.seeds += each[i].seeds;
        all.cpu_seconds += each[i].cpu_seconds;
        all.failed |= each[i].failed;
    }
    printf("%" PRIu64 " seeds, %" PRIu64 " events (%" PRIu64 " steps of the scheduler), %" PRIu64
           " faults in %.1f s of CPU time: %.0f events/s per core\n",
           all.seeds, all.tally.events, all.tally.steps, all.tally.faults, all.cpu_seconds,
           (double)all.tally.events / (all.cpu_seconds > 0 ? all.cpu_seconds : 1));
    printf("%" PRIu64 " worker failures, %" PRIu64 " scheduler failures; %" PRIu64 " leases formed, %" PRIu64
           " adopted; %" PRIu64 " call results; %" PRIu64 " jobs, %" PRIu64 " commits; %" PRIu64
           " restarts\n",
           all.tally.deaths, all.tally.restarts, all.tally.grants, all.tally.claims, all.tally.calls,
           all.tally.jobs, all.tally.commits, all.tally.reruns);
    printf("%" PRIu64 " training steps of ranks, %" PRIu64 " regroups, %" PRIu64 " failed trainings\n",
           all.tally.train_steps, all.tally.regroups, all.tally.gave_up);
    printf("%s\n", all.failed ? "a check failed" : "all checks passed");
    return all.failed ? 1 : 0;
}

static int run_all(const plan *p)
{
    sums *each =
        mmap(NULL, PROCESSES_MAX * sizeof(*each), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[PROCESSES_MAX];
    int code;

    if (each == MAP_FAILED) {
        fprintf(stderr, "no memory\n");
        return 1;
    }
    fflush(stdout);
    for (uint32_t i = 1; i < p->processes; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            run_seeds(p, i, &each[i]);
            _exit(0);
        }
        each[i].failed = children[i] < 0;
    }
    run_seeds(p, 0, &each[0]);
    for (uint32_t i = 1; i < p->processes; i++) {
        int state = 0;

        if (children[i] > 0 && (waitpid(children[i], &state, 0) < 0 || state != 0))
            each[i].failed = true;
    }
    code = tell(p, each);
    munmap(each, PROCESSES_MAX * sizeof(*each));
    return code;
}

static int plant(plan *p, const char *name)
{
    p->bug = sim_find_bug(name);
    if (p->bug != SIM_BUG_NONE)
        return -1;
    for (int i = 1; i < SIM_BUG_COUNT; i++)
        printf("%s\n", sim_bug_names[i]);
    return strcmp(name, "list") == 0 ? 0 : 2;
}

int main(int count, char **words)
{
    static const struct option options[] = {
        { "seeds", required_argument, NULL, 's' },  { "minutes", required_argument, NULL, 'm' },
        { "first", required_argument, NULL, 'f' },  { "rate", required_argument, NULL, 'r' },
        { "script", required_argument, NULL, 'c' }, { "processes", required_argument, NULL, 'p' },
        { "trace", no_argument, NULL, 't' },        { "plant", required_argument, NULL, 'b' },
        { "help", no_argument, NULL, 'h' },         { NULL, 0, NULL, 0 }
    };
    plan p = { .first = 1, .rate = 25, .processes = 1 };
    int code = -1;

    for (int option; code < 0 && (option = getopt_long(count, words, "", options, NULL)) >= 0;) {
        switch (option) {
        case 's':
            p.seeds = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            p.seconds = 60 * strtod(optarg, NULL);
            break;
        case 'f':
            p.first = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            p.rate = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'p':
            p.processes = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'c':
            p.script = optarg;
            break;
        case 't':
            p.trace = true;
            break;
        case 'b':
            code = plant(&p, optarg);
            break;
        case 'h':
            fputs(help, stdout);
            return 0;
        default:
            code = 2;
        }
    }
    if (code < 0 && (optind < count || p.processes == 0 || p.processes > PROCESSES_MAX || p.rate > 1000 ||
                     (p.trace && p.script == NULL && p.seeds != 1)))
        code = 2;
    if (code == 2)
        fprintf(stderr, "tests/sim/run: invalid arguments; try --help\n");
    if (code >= 0)
        return code;
    if (p.seeds == 0)
        p.seeds = p.seconds > 0 ? UINT64_MAX : 1000;
    sim_planted = p.bug;
    return p.script != NULL ? run_script(&p) : run_all(&p);
}
