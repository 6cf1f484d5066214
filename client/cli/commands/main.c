/* The gradpool command: run the subcommand that the first word names. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/cluster/job_attempt.h"
#include "client/cli/cluster/job_check.h"
#include "client/cli/cluster/ssh_host.h"
#include "client/cli/commands/call.h"
#include "client/cli/help.h"
#include "client/cli/jobs/job_self.h"
#include "common/base/memory/secret.h"
#include "common/base/system/fault.h"

/* Report options before the command, e.g. "gradpool --pool x status", with a corrected command
 * line. */
static int option_misplaced(int argc, char **argv)
{
    int at = 1;

    while (at < argc && command_find(argv[at]) == NULL)
        at++;
    if (at == argc) {
        fprintf(stderr, "gradpool: options come after a command; 'gradpool --help' lists the commands\n");
        return CLI_USAGE;
    }
    fprintf(stderr, "gradpool: options come after the command: gradpool %s", argv[at]);
    for (int i = 1; i < argc; i++)
        if (i != at)
            fprintf(stderr, " %s", argv[i]);
    fprintf(stderr, "\n");
    return CLI_USAGE;
}

static int run_words(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    const cli_command *command;

    if (argc < 2)
        return cli_home();
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        command = argc > 2 ? command_find(argv[2]) : NULL;
        if (argc > 2 && command == NULL)
            return command_unknown(argv[2]);
        if (command != NULL)
            help_command(command, false);
        else
            help_commands(stdout);
        return CLI_OK;
    }
    if (strcmp(word, "--version") == 0) {
        printf("%s\n", gp_version());
        return CLI_OK;
    }
    if (strcmp(word, "job-attempt") == 0)
        return job_attempt_main(argc, argv);
    if (strcmp(word, "job-check") == 0)
        return job_check_main(argc, argv, job_self_folder());
    if (strcmp(word, "ssh-host") == 0)
        return ssh_host_main();
    if (word[0] == '-')
        return option_misplaced(argc, argv);
    command = command_find(word);
    return command != NULL ? command_run(command, argc, argv, false) : command_unknown(word);
}

int main(int argc, char **argv)
{
    gp_error err;
    int code;

    signal(SIGPIPE, SIG_IGN);
    gp_secrets_adopt();
    if (gp_fault_arm(GP_FAULT_client, 1, job_self_attempt(), &err) != GP_OK) {
        fprintf(stderr, "gradpool: %s\n", err.message);
        return CLI_USAGE;
    }
    job_self_begin(argc, argv);
    code = run_words(argc, argv);
    job_self_end(code);
    return code;
}
