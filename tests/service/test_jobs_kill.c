/* test_jobs_kill.c -- kill -9 of everything, at any moment: what was acknowledged survives, runs once, ends once. */
#include "tests/service/jobs_stage.h"

enum { ROUNDS = 32, SUBMITS_MAX = 900 };

typedef struct gp_history {
    uint64_t acknowledged;               /* seqs 1 .. acknowledged were */
    uint64_t ids[SUBMITS_MAX];           /* by seq */
    gp_job_state ended[SUBMITS_MAX * 2]; /* by id: as it was first seen to have ended */
    uint32_t runs_then[SUBMITS_MAX * 2]; /* and how often it had run then */
} gp_history;

static gp_history *history;

/* A client that submits until it is killed, one by one. */
static void submit_for_ever(void)
{
    const char *const words[] = { "train", "append", in_root("ran"), "3", NULL };
    gp_job_request request = { .words = words, .key = { 42 } };

    gp_pool_close(pool); /* the parent's, if any: this process has its own */
    pool = NULL;
    while (gp_pool_open(&pool, &(gp_pool_options){ .workers = 2, .devices = "cpu" }, &err) != GP_OK)
        gp_sleep_ms(1);
    for (uint64_t seq = history->acknowledged + 1; seq < SUBMITS_MAX; seq++) {
        uint64_t job;

        request.seq = seq;
        if (gp_job_submit(&job, pool, &request, &err) != GP_OK)
            _exit(1);
        history->ids[seq] = job;
        __atomic_store_n(&history->acknowledged, seq, __ATOMIC_SEQ_CST);
    }
    for (;;)
        pause();
}

/* A signal to every process whose environment has our directories: daemons and jobs. */
static uint32_t signal_everything(int number)
{
    DIR *all = opendir("/proc");
    uint32_t count = 0;

    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        char path[300], text[1 << 15];
        int pid = atoi(entry->d_name);
        ssize_t got = -1;

        if (pid <= 1 || pid == (int)getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/%d/environ", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        if (fd >= 0) {
            got = read(fd, text, sizeof(text) - 1);
            close(fd);
        }
        if (got > 0 && memmem(text, (size_t)got, pools_root, strlen(pools_root)) != NULL)
            count += kill(pid, number) == 0;
    }
    closedir(all);
    return count;
}

/* All stop at one moment and die in it. One by one, in the order of process numbers (which wrap), a scheduler that
 * lives a little longer than its job would see a job killed by a signal, and that rightly is a failed job. */
static uint32_t kill_everything(void)
{
    signal_everything(SIGSTOP);
    return signal_everything(SIGKILL);
}

static uint32_t runs_of(uint64_t job)
{
    char line[100];
    FILE *file = fopen(in_root("ran"), "r");
    uint32_t count = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        count += strtoull(line, NULL, 10) == job;
    if (file != NULL)
        fclose(file);
    return count;
}

static uint64_t listed, listed_before; /* how many; the id listed last */

static bool check_listed(void *context, const gp_job_info *job)
{
    (void)context;
    listed++;
    CHECK(listed_before == 0 || job->id < listed_before);
    listed_before = job->id;
    if (job->id >= SUBMITS_MAX * 2) {
        GP_TEST_FAIL("job %d is too many", (int)job->id);
        return false;
    }
    CHECK(job->attempts <= 3);
    CHECK(job->state != GP_JOB_FAILED && job->state != GP_JOB_CANCELED);
    if (history->ended[job->id] != 0) {
        CHECK_INT(history->ended[job->id], job->state);
        CHECK_INT(history->runs_then[job->id], runs_of(job->id)); /* nothing runs after its end */
    } else if (gp_job_state_ended(job->state)) {
        history->ended[job->id] = job->state;
        history->runs_then[job->id] = runs_of(job->id);
        CHECK(job->state != GP_JOB_DONE || history->runs_then[job->id] >= 1);
        CHECK(history->runs_then[job->id] <= job->attempts);
    }
    return true;
}

/* Against all that was ever acknowledged. */
static void check_history(void)
{
    gp_job_info info;

    listed = listed_before = 0;
    CHECK_STATUS(GP_OK, gp_job_list(pool, true, check_listed, NULL, &err));
    CHECK(listed >= history->acknowledged && listed <= history->acknowledged + 1);
    for (uint64_t seq = 1; seq <= history->acknowledged; seq++) {
        CHECK(seq == 1 || history->ids[seq] > history->ids[seq - 1]); /* never used again */
        if (gp_job_get(&info, pool, history->ids[seq], &err) != GP_OK)
            GP_TEST_FAIL("submit %d, acknowledged as job %d: %s", (int)seq, (int)history->ids[seq],
                         err.message);
    }
}

static void check_ends(void)
{
    uint32_t done = 0, lost = 0, again = 0;

    for (uint64_t seq = 1; seq <= history->acknowledged && gp_test_failures == 0; seq++) {
        gp_job_info info = wait_end(history->ids[seq]);

        done += info.state == GP_JOB_DONE;
        lost += info.state == GP_JOB_LOST;
        again += info.attempts > 1;
        if (info.state == GP_JOB_DONE && runs_of(info.id) == 0)
            GP_TEST_FAIL("job %d is done and never ran", (int)info.id);
    }
    printf("     %d jobs acknowledged: %u done, %u of them not at the first attempt, %u lost\n",
           (int)history->acknowledged, done, again, lost);
    CHECK_INT(history->acknowledged, done + lost);
}

TEST(what_was_acknowledged_survives_the_death_of_everything_at_any_moment)
{
    uint32_t killed = 0;

    stage_begin(true);
    history = mmap(NULL, sizeof(*history), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    srand(12345);
    for (int round = 0; round < ROUNDS && gp_test_failures == 0; round++) {
        uint64_t before = history->acknowledged;

        fflush(stdout);
        pid_t client = fork();

        if (client == 0)
            submit_for_ever();
        for (int64_t end = gp_now_ms() + PATIENCE_MS;
             __atomic_load_n(&history->acknowledged, __ATOMIC_SEQ_CST) == before && gp_now_ms() < end;)
            gp_sleep_ms(1);
        CHECK(history->acknowledged > before);
        gp_sleep_ms(rand() % 40);
        if (round % 3 == 2)
            kill(client, SIGKILL); /* the client first, sometimes */
        killed += kill_everything();
        kill(client, SIGKILL);
        waitpid(client, NULL, 0);
        if (round % 4 == 3) { /* between the rounds, and at the end */
            killed += kill_everything();
            if (open_pool())
                check_history();
            gp_pool_close(pool);
            pool = NULL;
        }
    }
    REQUIRE(open_pool());
    check_ends();
    check_history();
    printf("     %u processes were killed\n", killed);
    munmap(history, sizeof(*history));
    stage_end();
}
