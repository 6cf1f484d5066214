/* test_slurm_tools.c: the script for sbatch, and how the replies of sbatch, squeue and scancel are
 * understood. Shell scripts stand in for the commands; tests/cluster has the real ones. */
#include "client/cluster/profile.h"
#include "client/cluster/slurm.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/system/file.h"
#include "tests/proto/scratch.h"
#include "tests/gp_test.h"

#define ENGINE (&cluster_engine_slurm)

static const gp_profile plain = {
    .name = "hpc", .type = GP_PROFILE_SLURM, .folder = "/shared", .gradpool = "gradpool"
};
static const cluster_launch launch = { .name = "gp-0123456789abcdef",
                                       .folder = "/shared/gp-0123456789abcdef",
                                       .requeue = true };

/* Replace a Slurm command by a shell script. */
static void fake(const char *name, const char *script)
{
    const char *path = scratch_path(name);
    char text[2000];
    gp_error err;

    snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", script);
    if (gp_file_write(path, text, strlen(text), &err) != GP_OK || chmod(path, 0700) != 0)
        GP_TEST_FAIL("%s", err.message);
    snprintf(text, sizeof(text), "%s:/usr/bin:/bin", scratch_dir);
    setenv("PATH", text, 1);
}

static const char *read_text(const char *name)
{
    static char text[8192];
    FILE *file = fopen(scratch_path(name), "r");
    size_t got = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;

    text[got] = '\0';
    if (file != NULL)
        fclose(file);
    return text;
}

/* ---- script ---- */

TEST(script_has_all_settings_of_the_profile)
{
    gp_profile profile = plain;
    gp_buffer script;
    gp_error err;

    profile.cores = 8;
    profile.gpus = 2;
    strcpy(profile.memory, "64G");
    strcpy(profile.time, "24h");
    strcpy(profile.account, "physics");
    strcpy(profile.partition, "gpu,long");
    strcpy(profile.gradpool, "/opt/grad pool/bin/gradpool");
    strcpy(profile.slurm_options, "--constraint=a100\n--mail-type=END,FAIL");
    setenv("PATH", "/bin", 1);
    setenv("HOME", "/home/u", 1);
    for (const char *const *name = (const char *const[]){ "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ",
                                                          "LD_LIBRARY_PATH", "KRB5CCNAME", NULL };
         *name != NULL; name++)
        unsetenv(*name);
    setenv("GP_TEST_SECRET", "canary", 1);
    gp_buffer_init(&script, 1 << 16);
    REQUIRE_OK(ENGINE->script(&profile, &launch, &script, &err), err);
    CHECK_TEXT("#!/bin/sh\n"
               "#SBATCH --job-name=gp-0123456789abcdef\n"
               "#SBATCH --nodes=1\n"
               "#SBATCH --ntasks=1\n"
               "#SBATCH --cpus-per-task=8\n"
               "#SBATCH --gres=gpu:2\n"
               "#SBATCH --mem=65536M\n"
               "#SBATCH --time=1440\n"
               "#SBATCH --account=physics\n"
               "#SBATCH --partition=gpu,long\n"
               "#SBATCH --signal=TERM@300\n"
               "#SBATCH --requeue\n"
               "#SBATCH --open-mode=append\n"
               "#SBATCH --output=/shared/gp-0123456789abcdef/engine.out\n"
               "#SBATCH --chdir=/\n"
               "#SBATCH --export=ALL\n"
               "# gradpool starts sbatch with these variables only: PATH HOME\n"
               "#SBATCH --constraint=a100\n"
               "#SBATCH --mail-type=END,FAIL\n"
               "exec srun --nodes=1 --ntasks=1 --cpus-per-task=\"$SLURM_CPUS_ON_NODE\" "
               "'/opt/grad pool/bin/gradpool' job-attempt /shared/gp-0123456789abcdef\n",
               gp_buffer_text(&script));
    gp_buffer_deinit(&script);
}

TEST(script_without_settings_leaves_them_to_slurm)
{
    cluster_launch given = launch;
    gp_buffer script;
    gp_error err;

    given.requeue = false;
    given.time_s = 61;
    gp_buffer_init(&script, 1 << 16);
    REQUIRE_OK(ENGINE->script(&plain, &given, &script, &err), err);
    for (const char *const *name = (const char *const[]){ "--cpus-per-task=8", "--gres", "--mem", "--account",
                                                          "--partition", NULL };
         *name != NULL; name++)
        CHECK(strstr(gp_buffer_text(&script), *name) == NULL);
    CHECK_CONTAINS(gp_buffer_text(&script), "--time=2\n");
    CHECK_CONTAINS(gp_buffer_text(&script), "--signal=TERM@20\n");
    CHECK_CONTAINS(gp_buffer_text(&script), "--no-requeue\n");
    gp_buffer_deinit(&script);
}

TEST(folder_that_sbatch_would_expand_is_refused)
{
    cluster_launch given = launch;
    gp_buffer script;
    gp_error err;

    gp_buffer_init(&script, 1 << 16);
    given.folder = "/shared/50%/gp-0123456789abcdef";
    CHECK_STATUS(GP_EINVAL, ENGINE->script(&plain, &given, &script, &err));
    gp_buffer_deinit(&script);
}

/* ---- launch ---- */

TEST(launch_passes_the_script_and_no_variables_of_the_user)
{
    char id[CLUSTER_ID_BYTES] = "", command[600];
    gp_error err;

    snprintf(command, sizeof(command), "cat > %s; env > %s; echo \"$@\" >> %s; echo '4803;t'",
             scratch_path("input"), scratch_path("environment"), scratch_path("environment"));
    fake("sbatch", command);
    setenv("SBATCH_ARRAY_INX", "1-100", 1);
    setenv("SLURM_GPUS_ON_NODE", "8", 1);
    setenv("SLURM_CONF", "/etc/slurm.conf", 1);
    setenv("GP_TEST_SECRET", "canary", 1);
    REQUIRE_OK(ENGINE->launch(&plain, &launch, id, &err), err);
    CHECK_TEXT("4803", id);
    CHECK_CONTAINS(read_text("input"), "#SBATCH --job-name=gp-0123456789abcdef\n");
    CHECK_CONTAINS(read_text("environment"), "SLURM_CONF=/etc/slurm.conf\n");
    CHECK_CONTAINS(read_text("environment"), "--parsable\n");
    CHECK(strstr(read_text("environment"), "canary") == NULL);
    CHECK(strstr(read_text("environment"), "SBATCH_ARRAY_INX") == NULL);
    CHECK(strstr(read_text("environment"), "SLURM_GPUS_ON_NODE") == NULL);
}

TEST(refusals_of_sbatch_differ_from_unknown_outcomes)
{
    static const struct {
        const char *script;
        gp_status status;
    } replies[] = {
        { "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1", GP_EINVAL },
        { "echo 'sbatch: error: invalid partition specified: x' >&2; exit 1", GP_EINVAL },
        { "echo 'sbatch: error: no such project; contact the help desk' >&2; "
          "echo 'sbatch: error: Batch job submission failed: Unspecified error' >&2; exit 1",
          GP_EINVAL },
        { "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; "
          "exit 1",
          GP_EPEER },
        { "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller' >&2; exit 1",
          GP_EPEER },
        { "echo 'sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received' >&2; "
          "exit 1",
          GP_EPEER },
        { "echo 'sbatch: error: Batch job submission failed: Insane message length' >&2; exit 1", GP_EPEER },
        { "echo 'sbatch: error: slurm_unpack_received_msg: [[n1]:6817] Message receive failure' >&2; "
          "echo 'sbatch: error: Batch job submission failed: Unspecified error' >&2; exit 1",
          GP_EPEER },
        { "echo 'sbatch: error: Batch job submission failed: Broken pipe' >&2; exit 1", GP_EPEER },
        { "kill -9 $$", GP_EPEER },
        { "echo", GP_EPEER },
        { "echo 48x3", GP_EPEER },
        { "echo -- -1", GP_EPEER },
        { "exec yes", GP_EPEER },
    };

    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        char id[CLUSTER_ID_BYTES] = "";
        gp_error err;

        fake("sbatch", replies[i].script);
        CHECK_STATUS(replies[i].status, ENGINE->launch(&plain, &launch, id, &err));
        CHECK_TEXT("", id);
    }
}

TEST(message_has_the_line_with_the_cause)
{
    cluster_listing listing = { 0 };
    char id[CLUSTER_ID_BYTES];
    gp_error err;

    fake("sbatch", "printf 'sbatch: error: Unable to resolve \"ctl\"\\nsbatch: error: Batch job submission "
                   "failed: No error\\n' >&2; exit 1");
    CHECK_STATUS(GP_EINVAL, ENGINE->launch(&plain, &launch, id, &err));
    CHECK_CONTAINS(err.message, "code 1: sbatch: error: Unable to resolve \"ctl\"");
    CHECK(strstr(err.message, "No error") == NULL);
    fake("squeue",
         "printf 'squeue: error: Unable to establish control machine address\\nslurm_load_jobs error: "
         "Inappropriate ioctl for device\\n' >&2; exit 1");
    CHECK_STATUS(GP_EPEER, ENGINE->list(&plain, &listing, &err));
    CHECK_CONTAINS(err.message, "Unable to establish control machine address");
    fake("squeue", "echo 'squeue: error: Invalid user' >&2; exit 1");
    CHECK_STATUS(GP_EPEER, ENGINE->list(&plain, &listing, &err));
    CHECK_CONTAINS(err.message, "Invalid user");
}

TEST(missing_sbatch_is_a_refusal)
{
    char id[CLUSTER_ID_BYTES];
    gp_error err;

    setenv("PATH", "/nonexistent", 1);
    CHECK_STATUS(GP_ENOENT, ENGINE->launch(&plain, &launch, id, &err));
    CHECK_CONTAINS(err.message, "no program 'sbatch' in PATH");
}

/* ---- list ---- */

TEST(listing_has_the_jobs_of_gradpool_only)
{
    cluster_listing listing = { 0 };
    gp_error err;

    fake("squeue", "[ \"$SLURM_TIME_FORMAT\" = %s ] || exit 1\n"
                   "echo '4803|gp-0123456789abcdef|RUNNING|1700000000|n2|None'\n"
                   "echo '4804|gp-1111111111111111|PENDING|1700000100||Resources'\n"
                   "echo '4805|gp-2222222222222222|PENDING|N/A||Dependency'\n"
                   "echo '4806|gp-3333333333333333|CANCELLED|N/A||None'\n"
                   "echo '4808|gp-4444444444444444|PENDING|N/A||None'\n"
                   "echo '4809|gp-5555555555555555|PENDING|N/A||Down for service|ask|gp-6666666666666666'\n"
                   "echo '4807_[1-9]|other|job|RUNNING|N/A|n1|None'\n");
    REQUIRE_OK(ENGINE->list(&plain, &listing, &err), err);
    REQUIRE(listing.count == 6);
    CHECK_TEXT("gp-0123456789abcdef", listing.entries[0].name);
    CHECK_TEXT("4803", listing.entries[0].id);
    CHECK_TEXT("RUNNING on n2", listing.entries[0].text);
    CHECK_INT(CLUSTER_ENTRY_RUNNING, listing.entries[0].state);
    CHECK_INT(CLUSTER_ENTRY_QUEUED, listing.entries[1].state);
    CHECK_TEXT("PENDING (Resources)", listing.entries[1].text);
    CHECK_INT(1700000100, listing.entries[1].expected_start_s);
    CHECK_INT(0, listing.entries[2].expected_start_s);
    CHECK_INT(CLUSTER_ENTRY_ENDED, listing.entries[3].state);
    CHECK_TEXT("PENDING", listing.entries[4].text);
    CHECK_TEXT("", listing.entries[4].reason);
    CHECK_TEXT("gp-5555555555555555", listing.entries[5].name);
    CHECK_TEXT("Down for service|ask|gp-6666666666666666", listing.entries[5].reason);
    cluster_listing_deinit(&listing);
}

TEST(incomplete_listing_is_an_error)
{
    static const char *const replies[] = {
        "echo '4803|gp-0123456789abcdef|RUNNING|1|n2|None'; exit 1",
        "printf '4803|gp-0123456789abcdef|RUNNING|1|n2|None'",
        "echo '4803|gp-0123456789abcdef|RUNNING|1|n2'",
        "echo 'cannot reach the controller'",
        "echo '-1|gp-0123456789abcdef|RUNNING|1|n2|None'",
        "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
    };

    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        cluster_listing listing = { 0 };
        gp_error err;

        fake("squeue", replies[i]);
        CHECK_STATUS(GP_EPEER, ENGINE->list(&plain, &listing, &err));
        CHECK_INT(0, listing.count);
        cluster_listing_deinit(&listing);
    }
}

TEST(odd_lines_of_other_jobs_and_new_states_do_not_spoil_a_listing)
{
    cluster_listing listing = { 0 };
    gp_error err;

    fake("squeue", "echo '4802|a job|PENDING|N/A||None'\n"
                   "echo '4803|two'; echo 'lines|RUNNING|1|n2|None'\n"
                   "echo '4804|gp-0123456789abcdef|FLYING|1|n2|None'\n");
    REQUIRE_OK(ENGINE->list(&plain, &listing, &err), err);
    REQUIRE(listing.count == 1);
    CHECK_INT(CLUSTER_ENTRY_RUNNING, listing.entries[0].state);
    CHECK_TEXT("FLYING on n2", listing.entries[0].text);
    cluster_listing_deinit(&listing);
    fake("squeue", "echo '4803|two'; echo 'more'; echo 'lines'");
    REQUIRE_OK(ENGINE->list(&plain, &listing, &err), err);
    CHECK_INT(0, listing.count);
    cluster_listing_deinit(&listing);
}

/* ---- cancel ---- */

TEST(job_that_slurm_forgot_counts_as_canceled)
{
    cluster_entry entry = { .id = "4803" };
    char text[CLUSTER_COMMAND_BYTES];
    gp_error err;

    fake("scancel", "[ \"$*\" = 4803 ]");
    CHECK_STATUS(GP_OK, ENGINE->cancel(&plain, &entry, &err));
    fake("scancel",
         "echo 'scancel: error: Kill job error on job id 4803: Invalid job id specified' >&2; exit 1");
    CHECK_STATUS(GP_OK, ENGINE->cancel(&plain, &entry, &err));
    fake("scancel", "echo 'scancel: error: Kill job error on job id 4803: Socket timed out' >&2; exit 1");
    CHECK_STATUS(GP_EPEER, ENGINE->cancel(&plain, &entry, &err));
    strcpy(entry.id, "--state=R");
    CHECK_STATUS(GP_EINVAL, ENGINE->cancel(&plain, &entry, &err));
    strcpy(entry.id, "4803");
    ENGINE->cancel_command(&plain, &entry, text);
    CHECK_TEXT("scancel 4803", text);
}
