// Clock control and the causes of resets (RM0385, chapter 5), and the independent watchdog, as the files clock.py and
// watchdog.py of tools/emulator/peripherals have them. Renode's own know no cause of a reset.
using System;
using System.Collections.Generic;

using Antmicro.Renode.Core;
using Antmicro.Renode.Peripherals.Bus;
using Antmicro.Renode.Peripherals.Memory;
using Antmicro.Renode.Peripherals.Miscellaneous;
using Antmicro.Renode.Time;
using Antmicro.Renode.Peripherals.Timers;

namespace Antmicro.Renode.Peripherals.Miscellaneous
{
    // Bits of RCC_CSR. The reset pin is pulled down by every other cause.
    [Flags]
    public enum ResetCause : uint
    {
        Pin = 1u << 26,
        PowerOn = 1u << 27 | 1u << 25 | Pin,
        Software = 1u << 28 | Pin,
        Watchdog = 1u << 29 | Pin,
    }

    // Oscillators are ready as soon as they are on. The clocks of Renode's peripherals do not follow from these registers.
    [AllowedTranslations(AllowedTranslation.ByteToDoubleWord | AllowedTranslation.WordToDoubleWord)]
    public class F746_RCC : IDoubleWordPeripheral, IKnownSize
    {
        public F746_RCC(IMachine machine, MappedMemory sram)
        {
            this.machine = machine;
            this.sram = sram;
            sram.ResetByte = SramAfterPowerOn;
            machine.GetSystemBus(this).AddWatchpointHook(ApplicationInterruptAndReset, SysbusAccessWidth.DoubleWord, Access.Write,
                (cpu, address, width, value) =>
                {
                    if((value & 0xFFFF0004) == SystemResetRequest)
                    {
                        next = ResetCause.Software;
                    }
                });
            causes = (uint)ResetCause.PowerOn;
            SetRegisters();
        }

        // Every reset of the machine comes here. One that nobody has announced is the reset button.
        public void Reset()
        {
            if(next == ResetCause.PowerOn)
            {
                sram.ZeroAll(); // to ResetByte
                causes = 0;
            }
            causes |= (uint)next;
            next = ResetCause.Pin;
            SetRegisters();
        }

        // Reset the machine as soon as the core has reached a place where that can be done.
        public void RequestReset(ResetCause cause)
        {
            next = cause;
            machine.RequestReset();
        }

        // Off and on again, now.
        public void PowerCycle()
        {
            next = ResetCause.PowerOn;
            machine.Reset();
        }

        public uint ReadDoubleWord(long offset)
        {
            uint value;
            registers.TryGetValue(offset, out value);
            switch(offset)
            {
            case ClockControl:
                return value | (value & OscillatorsOn) << 1;
            case ClockConfiguration:
                return value & ~0xCu | (value & 3) << 2;
            case BackupDomainControl:
                return value | (value & 1) << 1;
            case ControlAndStatus:
                return value | (value & 1) << 1 | causes;
            default:
                return value;
            }
        }

        public void WriteDoubleWord(long offset, uint value)
        {
            if(offset == ControlAndStatus)
            {
                causes = (value & RemoveResetFlags) != 0 ? 0 : causes;
                value &= 1;
            }
            registers[offset] = value;
        }

        public long Size => 0x400;

        private void SetRegisters()
        {
            registers.Clear();
            registers[ClockControl] = 0x83;
            registers[PllConfiguration] = 0x24003010;
            registers[Ahb1Enable] = 0x00100000;
        }

        private ResetCause next = ResetCause.Pin;
        private uint causes;

        private readonly IMachine machine;
        private readonly MappedMemory sram;
        private readonly Dictionary<long, uint> registers = new Dictionary<long, uint>();

        private const long ClockControl = 0x00;
        private const long PllConfiguration = 0x04;
        private const long ClockConfiguration = 0x08;
        private const long Ahb1Enable = 0x30;
        private const long BackupDomainControl = 0x70;
        private const long ControlAndStatus = 0x74;
        private const uint OscillatorsOn = 1u << 0 | 1u << 16 | 1u << 24 | 1u << 26 | 1u << 28;
        private const uint RemoveResetFlags = 1u << 24;
        private const ulong ApplicationInterruptAndReset = 0xE000ED0C;
        private const ulong SystemResetRequest = 0x05FA0004;
        private const byte SramAfterPowerOn = 0xA5;
    }
}

namespace Antmicro.Renode.Peripherals.Timers
{
    // Once started it runs until the next reset, asleep or not.
    [AllowedTranslations(AllowedTranslation.ByteToDoubleWord | AllowedTranslation.WordToDoubleWord)]
    public class F746_Watchdog : IDoubleWordPeripheral, IKnownSize
    {
        public F746_Watchdog(IMachine machine, F746_RCC rcc)
        {
            timer = new LimitTimer(machine.ClockSource, LowSpeedOscillatorHz, this, "watchdog", LongestReload, workMode: WorkMode.OneShot, eventEnabled: true, divider: 4);
            timer.LimitReached += () => rcc.RequestReset(ResetCause.Watchdog);
            Reset();
        }

        public void Reset()
        {
            timer.Reset();
            prescaler = 0;
            reload = LongestReload;
            unlocked = false;
        }

        public uint ReadDoubleWord(long offset)
        {
            return offset == Prescaler ? prescaler : offset == Reload ? reload : 0;
        }

        public void WriteDoubleWord(long offset, uint value)
        {
            if(offset == Key)
            {
                unlocked = value == UnlockKey;
                if(value == StartKey || (value == FeedKey && timer.Enabled))
                {
                    Feed();
                }
            }
            else if(unlocked && offset == Prescaler)
            {
                prescaler = value & 7;
            }
            else if(unlocked && offset == Reload)
            {
                reload = value & LongestReload;
            }
        }

        public long Size => 0x400;

        private void Feed()
        {
            timer.Divider = 4ul << (int)Math.Min(prescaler, 6);
            timer.Limit = reload + 1;
            timer.ResetValue();
            timer.Enabled = true;
        }

        private uint prescaler;
        private uint reload;
        private bool unlocked;

        private readonly LimitTimer timer;

        private const long Key = 0x00;
        private const long Prescaler = 0x04;
        private const long Reload = 0x08;
        private const uint StartKey = 0xCCCC;
        private const uint FeedKey = 0xAAAA;
        private const uint UnlockKey = 0x5555;
        private const uint LongestReload = 0xFFF;
        private const ulong LowSpeedOscillatorHz = 32000;
    }
}
