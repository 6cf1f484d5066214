/* test_jobs_kill.c: kill -9 to all processes at random times: every acknowledged job survives, ends
 * once, and does not run afterwards. Clients, jobs and the test write one history, which is checked
 * like a simulated one. */
#include <errno.h>

#include "tests/service/jobs_stage.h"
#include "tests/service/killer.h"
#include "tests/sim/history.h"

/* The pool keeps the last 1000 ended jobs; the checks need all. */
enum { ROUNDS = 32, ROUND_SUBMITS = 28, SUBMITS_MAX = ROUNDS * ROUND_SUBMITS };

/* Shared by the test and the clients that it kills. */
static struct {
    uint64_t acknowledged;         /* seqs 1 .. acknowledged were acknowledged */
    uint64_t ids[SUBMITS_MAX + 1]; /* by seq */
    /* last step of the present client, and why its last attempt to open the pool failed */
    const char *step;
    char open_error[GP_ERROR_MESSAGE_MAX];
} * shared;

static void note(history_entry entry)
{
    if (!history_append(in_root("history"), entry))
        GP_TEST_FAIL("no history: %s", strerror(errno));
}

/* Submit the jobs of a round one at a time, and wait to be killed. The pace makes most kills hit a
 * submit, not the wait. */
static void submit_until_killed(void)
{
    const char *const words[] = { "train", "record", in_root("history"), "3", NULL };
    gp_job_request request = { .words = words, .key = { 42 } };

    gp_pool_close(pool); /* the parent's, if any: this process needs another handle */
    pool = NULL;
    shared->step = "opens the pool";
    while (gp_pool_open(&pool, &(gp_pool_options){ .workers = 2, .devices = "cpu" }, &err) != GP_OK) {
        snprintf(shared->open_error, sizeof(shared->open_error), "%s", err.message);
        gp_sleep_ms(1);
    }
    shared->step = "submits";
    const uint64_t first = shared->acknowledged + 1;

    for (uint64_t seq = first; seq < first + ROUND_SUBMITS; seq++) {
        uint64_t job;

        gp_sleep_ms(1);
        request.seq = seq;
        note((history_entry){ .kind = HISTORY_SUBMIT, .session = 42, .seq = seq });
        if (gp_job_submit(&job, pool, &request, &err) != GP_OK) {
            printf("     submit %d: %s\n", (int)seq, err.message);
            fflush(stdout);
            _exit(1);
        }
        shared->ids[seq] = job;
        note((history_entry){ .kind = HISTORY_ACCEPT, .session = 42, .seq = seq, .id = job, .attempt = 3 });
        __atomic_store_n(&shared->acknowledged, seq, __ATOMIC_SEQ_CST);
    }
    shared->step = "waits";
    for (;;)
        pause();
}

static bool among(pid_t pid, const pid_t *pids, uint32_t count)
{
    while (count > 0 && pids[count - 1] != pid)
        count--;
    return count > 0;
}

/* Suspend all processes, then kill them. The suspended schedulers are killed last: a running
 * scheduler would correctly record a killed job as failed. The next scheduler, which a client may
 * start at once, finds no running job. */
static uint32_t kill_everything(void)
{
    pid_t all[512], schedulers[16];
    uint32_t count = pool_processes(NULL, all, 512), standing, killed = 0;

    for (uint32_t i = 0; i < count; i++)
        kill(all[i], SIGSTOP);
    standing = pool_processes("gradpool-scheduler", schedulers, 16);
    count = pool_processes(NULL, all, 512); /* includes processes started meanwhile */
    for (uint32_t i = 0; i < count; i++)
        killed += !among(all[i], schedulers, standing) && kill(all[i], SIGKILL) == 0;
    for (uint32_t i = 0; i < count; i++)
        while (!among(all[i], schedulers, standing) && process_alive(all[i]))
            gp_sleep_ms(1);
    for (uint32_t i = 0; i < standing; i++)
        killed += kill(schedulers[i], SIGKILL) == 0;
    return killed;
}

static uint64_t listed, listed_before; /* number of listed jobs; last listed id */

static bool note_listed(void *context, const gp_job_info *job)
{
    (void)context;
    listed++;
    CHECK(listed_before == 0 || job->id < listed_before);
    listed_before = job->id;
    CHECK(job->attempts <= 3);
    CHECK(job->state != GP_JOB_FAILED && job->state != GP_JOB_CANCELED);
    if (gp_job_state_ended(job->state))
        note((history_entry){ .kind = HISTORY_END, .id = job->id, .outcome = (int32_t)job->state });
    return true;
}

/* Check the history so far. */
static void check_history(bool closed)
{
    static const history_rules rules = { .gapless = true, .good = GP_JOB_DONE };
    history *h = history_new(&rules);
    gp_job_info info;

    listed = listed_before = 0;
    CHECK_STATUS(GP_OK, gp_job_list(pool, true, note_listed, NULL, &err));
    CHECK(listed >= shared->acknowledged && listed <= shared->acknowledged + 1);
    for (uint64_t seq = 1; seq <= shared->acknowledged; seq++) {
        gp_status status = gp_job_get(&info, pool, shared->ids[seq], &err);

        if (status == GP_ENOENT)
            note((history_entry){ .kind = HISTORY_MISSING, .id = shared->ids[seq] });
        else
            CHECK_STATUS(GP_OK, status);
    }
    if (!history_read(h, in_root("history")) || (closed && !history_close(h)))
        GP_TEST_FAIL("%s: %s", history_check(h), history_failure(h));
    if (closed)
        printf("     %d submits acknowledged, %d starts (%d of them repeated)\n",
               (int)history_get_counts(h).of[HISTORY_ACCEPT], (int)history_get_counts(h).of[HISTORY_START],
               (int)history_get_counts(h).again);
    history_free(h);
}

static void check_ends(void)
{
    uint32_t done = 0, lost = 0, again = 0;

    for (uint64_t seq = 1; seq <= shared->acknowledged && gp_test_failures == 0; seq++) {
        gp_job_info info = wait_end(shared->ids[seq]);

        done += info.state == GP_JOB_DONE;
        lost += info.state == GP_JOB_LOST;
        again += info.attempts > 1;
    }
    printf("     %d jobs acknowledged: %u done (%u of them after a retry), %u lost\n",
           (int)shared->acknowledged, done, again, lost);
    if (gp_test_failures == 0)
        CHECK_INT(shared->acknowledged, done + lost);
}

TEST(acknowledged_jobs_survive_a_kill_of_all_processes_at_any_time)
{
    uint32_t killed = 0;

    stage_begin(true);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    srand(12345);
    for (int round = 0; round < ROUNDS && gp_test_failures == 0; round++) {
        uint64_t before = shared->acknowledged;

        shared->step = "starts";
        shared->open_error[0] = '\0';
        fflush(stdout);
        int state = 0;
        pid_t client = fork();

        if (client == 0)
            submit_until_killed();
        AWAIT(__atomic_load_n(&shared->acknowledged, __ATOMIC_SEQ_CST) != before || !process_alive(client),
              1);
        if (shared->acknowledged == before)
            GP_TEST_FAIL("round %d: no job was accepted; the client %s (%s)", round, shared->step,
                         shared->open_error[0] != '\0' ? shared->open_error : "no error");
        gp_sleep_ms(rand() % 40);
        if (round % 3 == 2)
            kill(client, SIGKILL); /* sometimes the client first */
        killed += kill_everything();
        kill(client, SIGKILL);
        waitpid(client, &state, 0);
        if (gp_test_failures > 0)
            printf("     the client ended with wait status %d\n", state);
        if (round % 4 == 3) { /* between the rounds and at the end */
            killed += kill_everything();
            if (open_pool())
                check_history(false);
            gp_pool_close(pool);
            pool = NULL;
        }
    }
    if (gp_test_failures == 0 && open_pool())
        check_ends();
    if (gp_test_failures == 0)
        check_history(true);
    printf("     %u processes were killed\n", killed);
    munmap(shared, sizeof(*shared));
}
