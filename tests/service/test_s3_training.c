/* test_s3_training.c: trainings from s3:// with real daemons, and a search for leaked secrets. */
#include <dirent.h>
#include <ftw.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "tests/common/data/make_images.h"
#include "tests/fake/s3.h"
#include "tests/service/commands.h"

TEARDOWN()
{
    pools_end();
}

enum { SIDE = 28, IMAGES = 24, CHECKS = 8, STEPS = 12 };

#define SECRET "canary-secret-4f1d"
#define TOKEN  "canary-token-9b27"
#define SOURCE "s3://tiles/tiles?cache=0"

#define NEED(server)                                                                                         \
    s3_server *server = s3_start();                                                                          \
    S3_REQUIRE(server);                                                                                      \
    credentials_set(server, "AKIDTEST", SECRET, TOKEN)

static void credentials_set(s3_server *server, const char *id, const char *secret, const char *token)
{
    char endpoint[80];

    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", server->port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    setenv("AWS_ACCESS_KEY_ID", id, 1);
    setenv("AWS_SECRET_ACCESS_KEY", secret, 1);
    setenv("AWS_SESSION_TOKEN", token, 1);
    unsetenv("AWS_PROFILE");
    unsetenv("AWS_REGION");
    unsetenv("AWS_DEFAULT_REGION");
    s3_server_run(server, "keys %s %s %s", id, secret, token);
}

static void tile_make(const char *part, const char *class, int number, uint32_t seed)
{
    uint8_t image[SIDE * SIDE];
    char path[300];

    for (int i = 0; i < SIDE * SIDE; i++) {
        seed = seed * 1664525u + 1013904223u;
        image[i] = (uint8_t)((seed >> 24) / 2 + (class[0] == 'l' && i % SIDE < SIDE / 2 ? 100 : 0));
    }
    snprintf(path, sizeof(path), "%s/%s/%s/%03d.png", in_w("tiles"), part, class, number);
    make_png(path, &(made_image){ .width = SIDE, .height = SIDE, .channels = 1, .data = image });
}

/* Start a pool with credentials in the environment; create a folder of tiles and the same data in a
 * bucket. */
static void tiles_begin(s3_server *server)
{
    static const char *const folders[] = { "",      "/train",     "/train/left", "/train/none",
                                           "/test", "/test/left", "/test/none" };
    static bool uploaded;

    exec_begin();
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char path[300];

        snprintf(path, sizeof(path), "%s%s", in_w("tiles"), folders[i]);
        if (mkdir(path, 0700) != 0)
            abort();
    }
    for (int i = 0; i < IMAGES + CHECKS; i++)
        tile_make(i < IMAGES ? "train" : "test", i % 2 == 0 ? "left" : "none", i, (uint32_t)i + 1);
    if (!uploaded) {
        s3_server_run(server, "bucket tiles");
        s3_server_run(server, "upload tiles tiles %s", in_w("tiles"));
    }
    uploaded = true;
}

static int train(const char *data, const char *metrics)
{
    char checkpoints[80];

    snprintf(checkpoints, sizeof(checkpoints), "%s-checkpoints", metrics);
    return RUN("train", "--network", "lenet", "--data", data, "--max-epochs", "2", "--mini-batch-size", "4",
               "--seed", "3", "--metrics", metrics, "--checkpoint-path", checkpoints,
               "--checkpoint-frequency", "1", "--lint", "warn", "--out", "model.onnx");
}

/* Read the losses of a metrics file by step, and return their number. Steps may be missing: a
 * training does not wait for slow readers. */
static int losses_read(const char *name, char losses[STEPS][40])
{
    static char text[1 << 18];
    int count = 0;

    memset(losses, 0, STEPS * sizeof(losses[0]));
    slurp(in_w(name), text, sizeof(text));
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        const char *step = strstr(line, "\"step\":"), *loss = strstr(line, "\"loss\":");
        int number = step == NULL || loss == NULL ? 0 : atoi(step + 7);

        if (number < 1 || number > STEPS)
            continue;
        snprintf(losses[number - 1], sizeof(losses[0]), "%.*s", (int)strcspn(loss + 7, ",}"), loss + 7);
        count++;
    }
    return count;
}

/* ---- search for secrets ---- */

static const char *const canaries[] = { SECRET, TOKEN };
static char found_in[600];
static uint64_t files_searched;

static bool bytes_contain(const char *path)
{
    FILE *file = fopen(path, "r");
    static char data[1 << 20];
    size_t got, kept = 0;
    bool found = false;

    while (file != NULL && !found && (got = fread(data + kept, 1, sizeof(data) - kept, file)) > 0) {
        got += kept;
        for (size_t i = 0; i < sizeof(canaries) / sizeof(canaries[0]); i++)
            found |= memmem(data, got, canaries[i], strlen(canaries[i])) != NULL;
        kept = got < 64 ? got : 64;
        memmove(data, data + got - kept, kept);
    }
    if (file != NULL)
        fclose(file);
    return found;
}

static int file_search(const char *path, const struct stat *stat_, int type, struct FTW *where)
{
    (void)where;
    if (type != FTW_F || !S_ISREG(stat_->st_mode))
        return 0;
    files_searched++;
    if (bytes_contain(path))
        snprintf(found_in, sizeof(found_in), "%s", path);
    return 0;
}

/* Search the arguments of every process and the environment of our daemons. Return the number of
 * daemons. */
static int processes_search(void)
{
    DIR *directory = opendir("/proc");
    struct dirent *entry;
    int daemons = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char path[300], name[64] = "", words[4096] = "";

        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "/proc/%.20s/comm", entry->d_name);
        slurp(path, name, sizeof(name));
        snprintf(path, sizeof(path), "/proc/%.20s/cmdline", entry->d_name);
        if (bytes_contain(path))
            snprintf(found_in, sizeof(found_in), "%s of %s", path, name);
        slurp(path, words, sizeof(words));
        snprintf(path, sizeof(path), "/proc/%.20s/environ", entry->d_name);
        if (strncmp(name, "gradpool-", 9) != 0)
            continue;
        daemons++;
        if (bytes_contain(path))
            snprintf(found_in, sizeof(found_in), "%s of %s", path, name);
    }
    closedir(directory);
    return daemons;
}

/* Return whether a core dump of the process would contain its memory. It would not if root owns the
 * files or the core filter is 0. */
static bool leaves_memory(pid_t pid)
{
    char path[64], filter[32] = "";
    int mem;

    snprintf(path, sizeof(path), "/proc/%d/coredump_filter", (int)pid);
    slurp(path, filter, sizeof(filter));
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    mem = geteuid() == 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC); /* root always has access */
    if (mem >= 0)
        close(mem);
    return strtoul(filter, NULL, 16) != 0 && mem >= 0;
}

/* Abort a daemon with an unlimited core size. The working directory is "/", where only root's cores
 * are written. */
static void abort_search(pid_t pid, const char *what)
{
    const char *names[] = { "/core", NULL };
    char numbered[40], pattern[200] = "";
    struct stat stat_;

    slurp("/proc/sys/kernel/core_pattern", pattern, sizeof(pattern));
    snprintf(numbered, sizeof(numbered), "/core.%d", (int)pid);
    names[1] = numbered;
    CHECK(!leaves_memory(pid));
    if (geteuid() != 0 || strncmp(pattern, "core\n", 5) != 0 || stat("/core", &stat_) == 0)
        return;
    CHECK(kill(pid, SIGABRT) == 0);
    for (int i = 0; i < POOLS_TIMEOUT_MS && process_alive(pid); i++)
        gp_sleep_ms(1);
    for (int i = 0; i < 2; i++)
        if (stat(names[i], &stat_) == 0) {
            if (bytes_contain(names[i]))
                GP_TEST_FAIL("the core file of %s contains the secrets", what);
            unlink(names[i]);
        }
}

static void canary_search(void)
{
    found_in[0] = '\0';
    files_searched = 0;
    nftw(pools_root, file_search, 16, FTW_PHYS);
    CHECK(files_searched > 10);
    CHECK(processes_search() >= 3); /* a scheduler and two workers */
    CHECK_TEXT("", found_in);
}

/* ---- tests ---- */

TEST(training_from_s3_matches_the_folder_and_leaks_no_secret)
{
    NEED(server);
    static char local[STEPS][40], remote[STEPS][40];

    setenv("GRADPOOL_LOG", "debug", 1);

    /* for all child processes, if permitted */
    setrlimit(RLIMIT_CORE, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY });
    tiles_begin(server);
    unsetenv("GRADPOOL_LOG");
    s3_server_run(server, "dump %s", in_root("http"));
    CHECK_INT(0, train("tiles", "local.jsonl"));
    s3_server_run(server, "fault 2 503");
    s3_server_run(server, "fault 1 nothing");
    if (train(SOURCE, "remote.jsonl") != 0)
        GP_TEST_FAIL("%s", err);
    CHECK(losses_read("local.jsonl", local) >= STEPS - 2);
    CHECK(losses_read("remote.jsonl", remote) >= STEPS - 2);
    for (int i = 0; i < STEPS; i++)
        if (local[i][0] != '\0' && remote[i][0] != '\0')
            CHECK_TEXT(local[i], remote[i]);
    RUN_CODE(0, "evaluate", "--model", "model.onnx", "--data", SOURCE);
    RUN_CODE(0, "predict", "--model", "model.onnx", "--data", SOURCE, "--out", "p.csv");
    RUN_CODE(0, "data", "show", SOURCE);
    s3_server_run(server, "dump /dev/null");

    /* S3 receives the token, and the search finds existing text */
    CHECK(bytes_contain(in_root("http")));
    unlink(in_root("http"));
    canary_search();
    abort_search(pid_of(1), "a worker");
    abort_search(pid_of(2), "a worker");
    abort_search(pid_of(0), "the scheduler");
}

TEST(renewed_secrets_reach_running_workers_and_expired_ones_are_reported)
{
    NEED(server);
    tiles_begin(server);
    CHECK_INT(0, train(SOURCE, "a.jsonl"));
    credentials_set(server, "AKIDTEST", SECRET "-2", TOKEN "-2");
    CHECK(train(SOURCE, "b.jsonl") != 0);
    CHECK_CONTAINS(err, "the secrets of the pool (`gradpool up --secret-env`)");
    CHECK(strstr(err, "canary") == NULL);
    RUN_CODE(0, "up", "--secret-env", "AWS_ACCESS_KEY_ID,AWS_SECRET_ACCESS_KEY,AWS_SESSION_TOKEN");
    if (train(SOURCE, "c.jsonl") != 0)
        GP_TEST_FAIL("%s", err);
    CHECK(RUN("up", "--secret-env", "AWS_ACCESS_KEY_ID,NO_SUCH_VARIABLE") != 0);
    CHECK_CONTAINS(err, "the environment variable NO_SUCH_VARIABLE is not set");
    canary_search();
    abort_search(pid_of(0), "the scheduler"); /* has forwarded the new ones */
}

TEST(job_reads_from_s3_with_the_pools_secrets_and_the_journal_has_none)
{
    NEED(server);
    tiles_begin(server);
    CHECK(RUN("submit", "--env", "AWS_SECRET_ACCESS_KEY", "--", "train", "--network", "lenet", "--data",
              SOURCE) != 0);
    CHECK_CONTAINS(err, "would be stored in the pool's journal");
    RUN_CODE(0, "submit", "--", "train", "--network", "lenet", "--data", SOURCE, "--max-epochs", "1",
             "--mini-batch-size", "4");
    if (RUN("wait", "1") != 0) {
        RUN("logs", "1");
        GP_TEST_FAIL("the job failed: %s%s", out, err);
    }
    canary_search();
}

TEST(source_options_locate_a_bucket_and_are_kept_in_split_lists)
{
    NEED(server);
    char endpoint[80];

    tiles_begin(server);
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", server->port);
    unsetenv("AWS_ENDPOINT_URL");
    RUN_CODE(0, "data", "show", "s3://tiles/tiles", "--s3-endpoint", endpoint, "--s3-cache", "0", "--json");
    CHECK_CONTAINS(out, "left");
    RUN_CODE(0, "data", "split", "s3://tiles/tiles/train", "0.5", "--s3-endpoint", endpoint, "-o",
             "a.csv,b.csv");
    RUN_CODE(0, "data", "show", "a.csv", "--json");
    CHECK_CONTAINS(out, "\"samples\": 12");
    if (RUN("train", "--network", "lenet", "--data", "a.csv", "--validation-data", "b.csv", "--max-epochs",
            "1", "--mini-batch-size", "4", "--lint", "warn") != 0)
        GP_TEST_FAIL("%s", err);
    RUN_CODE(2, "data", "show", "tiles", "--s3-region", "north");
    CHECK_CONTAINS(err, "have no effect");
    RUN_CODE(2, "data", "show", "s3://tiles/tiles", "--s3-cache", "much");
    CHECK_CONTAINS(err, "a size such as 20GiB");
    RUN_CODE(2, "train", "--network", "lenet", "--data", "s3://tiles/tiles", "--s3-endpont", endpoint);
    CHECK_CONTAINS(err, "did you mean --s3-endpoint?");
}

/* ---- pixel classes ---- */

static void field_make(const char *part, int number)
{
    uint8_t image[SIDE * SIDE], label[SIDE * SIDE];
    uint32_t seed = (uint32_t)number * 31 + 7;
    char path[300];

    for (int i = 0; i < SIDE * SIDE; i++) {
        const bool bright = (i % SIDE + i / SIDE + number) % 16 < 8;

        seed = seed * 1664525u + 1013904223u;
        image[i] = (uint8_t)((seed >> 25) + (bright ? 120 : 0));
        label[i] = bright;
    }
    snprintf(path, sizeof(path), "%s/%s/%03d.png", in_w("fields"), part, number);
    make_png(path, &(made_image){ .width = SIDE, .height = SIDE, .channels = 1, .data = image });
    snprintf(path, sizeof(path), "%s/%sannot/%03d.png", in_w("fields"), part, number);
    make_png(path, &(made_image){ .width = SIDE, .height = SIDE, .channels = 1, .data = label });
}

static void fields_begin(s3_server *server)
{
    static const char *const folders[] = { "", "/train", "/trainannot", "/val", "/valannot" };

    exec_begin();
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char path[300];

        snprintf(path, sizeof(path), "%s%s", in_w("fields"), folders[i]);
        if (mkdir(path, 0700) != 0)
            abort();
    }
    for (int i = 0; i < IMAGES + CHECKS; i++)
        field_make(i < IMAGES ? "train" : "val", i);
    write_file("w/fields/classes.csv", "name,r,g,b\ndark,1,2,3\nbright,200,100,50\n");
    s3_server_run(server, "bucket fields");
    s3_server_run(server, "upload fields fields %s", in_w("fields"));
}

TEST(label_images_in_s3_give_the_same_results_as_on_disk)
{
    NEED(server);
    static const char *const sources[] = { "fields", "s3://fields/fields?cache=0" }, *const names[] = {
        "local.jsonl", "remote.jsonl"
    };
    static char losses[2][STEPS][40];

    fields_begin(server);
    for (int i = 0; i < 2; i++) {
        if (RUN("train", "--network", "unet:depth=1,width=4,dropout=0", "--data", sources[i], "--max-epochs",
                "4", "--mini-batch-size", "8", "--seed", "3", "--metrics", names[i], "--class-weights",
                "auto", "--augment", "crop=random crop-size=24,24", "--out", "u.onnx") != 0)
            GP_TEST_FAIL("%s", err);
        CHECK(losses_read(names[i], losses[i]) >= STEPS - 2);
        RUN_CODE(0, "predict", "--model", "u.onnx", "--data", sources[i], "--out", i == 0 ? "one/" : "two/",
                 "--overlays", i == 0 ? "over-one/" : "over-two/");
    }
    for (int i = 0; i < STEPS; i++)
        if (losses[0][i][0] != '\0' && losses[1][i][0] != '\0')
            CHECK_TEXT(losses[0][i], losses[1][i]);

    /* The same classes and colors as in the class file in the bucket. */
    CHECK_INT(0, shell("cd w && diff -r one two && diff -r over-one over-two && "
                       "grep -q bright,200,100,50 two/classes.csv"));
}
