/* spool.h: a profile of type `command` whose engine, tests/fake/spool.py, runs jobs as processes of
 * this host. */
#ifndef GP_TEST_SPOOL_H
#define GP_TEST_SPOOL_H

#include "client/cluster/profile.h"
#include "tests/service/commands.h"

/* Create the profile "spool" with two cores and an empty spool. */
static inline bool spool_begin(gp_profile *profile)
{
    const char *source = getenv("GP_SOURCE_DIR");
    char launch[600], status[600], cancel[600];
    gp_error e;

    commands_begin();
    setenv("HOME", pools_root, 1);
    setenv("XDG_CONFIG_HOME", in_root("config"), 1);
    if (mkdir(in_root("jobs"), 0700) != 0)
        abort();
    source = source == NULL ? "." : source;
    snprintf(launch, sizeof(launch), "%s/tests/fake/spool.py %s launch {name} {script}", source,
             in_root("spool"));
    snprintf(status, sizeof(status), "%s/tests/fake/spool.py %s list", source, in_root("spool"));
    snprintf(cancel, sizeof(cancel), "%s/tests/fake/spool.py %s cancel {id}", source, in_root("spool"));
    RUN_CODE(0, "cluster", "new", "spool", "--type", "command", "--folder", in_root("jobs"), "--cores", "2",
             "--gradpool", in_build("bin/gradpool"), "--launch", launch, "--status", status, "--cancel",
             cancel);
    if (gp_profile_read(profile, "spool", &e) != GP_OK)
        GP_TEST_FAIL("%s", e.message);
    return profile->launch[0] != '\0';
}

/* Write a control file of the engine, such as "fault-launch". */
static inline void spool_control(const char *name, const char *text)
{
    char path[200];
    FILE *file;

    mkdir(in_root("spool"), 0700);
    snprintf(path, sizeof(path), "spool/%s", name);
    file = fopen(in_root(path), "w");
    if (file == NULL || fputs(text, file) == EOF || fclose(file) != 0)
        abort();
}

#endif
