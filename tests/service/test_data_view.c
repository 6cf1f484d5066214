/* test_data_view.c: workers with different views of the file system; one runs in another mount
 * namespace. */
#include "tests/service/commands.h"

/* Mount an empty directory, or `instead`, over the data for the second worker. false: no permission
 * for namespaces. */
static bool second_sees(const char *instead)
{
    char text[1200], script[200];

    if (system("unshare -m true 2> /dev/null") != 0)
        return false;
    commands_begin();
    unsetenv("GRADPOOL_DATA");
    snprintf(text, sizeof(text),
             "#!/bin/sh\n"
             "case \"$*\" in\n"
             "*'--index 2 '*) exec unshare -m sh -c '%s %s && exec \"$0\" \"$@\"' '%s' \"$@\" ;;\n"
             "esac\n"
             "exec '%s' \"$@\"\n",
             instead, in_root("data"), getenv("GRADPOOL_WORKER"), getenv("GRADPOOL_WORKER"));
    write_file("worker", text);
    snprintf(script, sizeof(script), "%s", in_root("worker"));
    chmod(script, 0700);
    setenv("GRADPOOL_WORKER", script, 1);
    return true;
}

static void train_expect(const char *first, const char *second)
{
    char host[80] = "";

    gethostname(host, sizeof(host) - 1);
    RUN_CODE(1, "train", "--network", "lenet", "--data", "../data", "--out", "m.onnx");
    CHECK_CONTAINS(err, "worker 2: on ");
    CHECK_CONTAINS(err, host);
    CHECK_CONTAINS(err, "data");
    CHECK_CONTAINS(err, first);
    CHECK_CONTAINS(err, second);
    CHECK(strstr(out, "epoch") == NULL); /* no step was made */
    RUN_CODE(0, "status");
    pools_end();
}

TEST(path_missing_on_one_worker_is_an_error_before_the_first_step)
{
    if (!second_sees("mount -t tmpfs none"))
        SKIP("mount namespaces are not permitted here");
    RUN_CODE(0, "data", "make", "digits", "../data", "--count", "300", "--test-count", "100");
    RUN_CODE(0, "up", "--workers", "2", "--devices", "cpu", "--quiet");
    train_expect("data", "train");
}

TEST(different_samples_on_a_worker_are_an_error_before_the_first_step)
{
    char other[300];

    snprintf(other, sizeof(other), "mount --bind /tmp/gradpool-test-other-%d", (int)getpid());
    if (!second_sees(other))
        SKIP("mount namespaces are not permitted here");
    RUN_CODE(0, "data", "make", "digits", "../data", "--count", "300", "--test-count", "100");
    RUN_CODE(0, "data", "make", "digits", other + strlen("mount --bind "), "--count", "310", "--test-count",
             "100");
    RUN_CODE(0, "up", "--workers", "2", "--devices", "cpu", "--quiet");
    train_expect("310 samples here, 300 there", "make the same files available to all workers");
    CHECK_INT(0, shell("rm -rf /tmp/gradpool-test-other-%d", (int)getpid()));
}
