"""ReFrame tests of a site's Lockstep: are collectives correct, does training give the same bits on all ranks? With its
module loaded, or LOCKSTEP naming the program: reframe -C SITE.py -c slurm/reframe_lockstep.py -r (docs/install.md)"""

import os

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, performance_function, run_after, sanity_function, variable


class LockstepTest(rfm.RunOnlyRegressionTest):
    valid_systems = ['*']
    valid_prog_environs = ['*']
    ranks = parameter([1, 2, 4], loggable=True)
    threads = variable(int, value=1)
    executable = os.environ.get('LOCKSTEP', 'lockstep')
    maintainers = ['lockstep']

    @run_after('init')
    def set_ranks(self):
        self.num_tasks = self.ranks
        self.num_cpus_per_task = self.threads
        self.env_vars['OMP_NUM_THREADS'] = self.threads


@rfm.simple_test
class LockstepCollectives(LockstepTest):
    descr = 'every collective gives the expected sums; bandwidth of the gradients of a step'
    executable_opts = ['comm-test', '--max-bytes', '4MiB', '--budget', '5', '--log-level', 'detail']
    ranks = parameter([2, 4], loggable=True)

    @sanity_function
    def are_correct(self):
        return sn.assert_found(r'^All collectives are correct', self.stdout)

    @performance_function('MiB/s')
    def start_all_reduce(self):
        lines = sn.extractall(r'start_all_reduce +\d+ .* ([\d.]+) ([KMG])iB/s +[\d.]+ [KMG]iB/s', self.stdout, (1, 2))
        return sn.max(float(value) * {'K': 1 / 1024, 'M': 1, 'G': 1024}[unit] for value, unit in lines)


@rfm.simple_test
class LockstepTraining(LockstepTest):
    descr = 'a training on all ranks ends with the bits of one rank'
    options = ('train --data.path data.h5 --batch.size 200 --model.hidden_size 32 --seed 5 --reproducible '
               '--train.epochs 4 --log-level detail --run-dir')
    executable_opts = [options, 'all']

    @run_after('setup')
    def set_commands(self):
        self.prerun_cmds = [f'{self.executable}-prep synth-icecolumn --rows 4000 --seed 3 --output data.h5',
                            f'{self.executable} {self.options} one >one.out']
        self.postrun_cmds = [f'{self.executable} checkpoint diff --under /model '
                             'one/checkpoints/final.h5 all/checkpoints/final.h5']

    @sanity_function
    def has_the_bits_of_one_rank(self):
        return sn.all([sn.assert_found(rf'^ranks: {self.ranks} on', self.stderr),
                       sn.assert_found(r'^finished after 4 epochs, 64 steps', self.stderr),
                       sn.assert_found(r'^all \d+ datasets are equal', self.stdout)])

    @performance_function('samples/s')
    def speed(self):
        value, unit = sn.extractall(r'^step .* ([\d.]+)(k?) samples/s', self.stderr, (1, 2))[-1]
        return float(value) * (1000 if unit == 'k' else 1)
